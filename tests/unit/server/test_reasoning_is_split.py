"""Reasoning between <think> tags is told apart from the answer, wherever a chunk is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeseek.server.reasoning import ReasoningSplitter, prompt_opens_reasoning


def split(pieces: list[str], *, inside: bool) -> tuple[str, str]:
    splitter = ReasoningSplitter(inside=inside)
    parts = [splitter.push(piece) for piece in pieces] + [splitter.finish()]
    for reasoning, content in parts:
        assert not any(tag in reasoning + content for tag in ("<think", "</th", "think>"))
    return "".join(part[0] for part in parts), "".join(part[1] for part in parts)


def test_a_tag_that_two_chunks_share_is_found() -> None:
    assert split(["17*3=51</th", "ink>\n\n51"], inside=True) == ("17*3=51", "51")


def test_cut_off_before_the_tag_all_is_reasoning() -> None:
    assert split(["17*3", "=51"], inside=True) == ("17*3=51", "")
    assert split(["17*3=51</thi"], inside=True) == ("17*3=51", "")


def test_without_tags_all_is_content() -> None:
    assert split(["The answer", " is 51. "], inside=False) == ("", "The answer is 51. ")


def test_the_output_may_open_the_tag_itself() -> None:
    assert split(["\n<th", "ink>\nso", " what\n</think>", "\n\n", "51"], inside=False) == ("so what", "51")


def test_empty_reasoning_is_none() -> None:
    assert split(["\n\n</think>\n\n51"], inside=True) == ("", "51")


def test_a_beginning_that_is_no_tag_after_all_is_content() -> None:
    splitter = ReasoningSplitter(inside=False)
    assert splitter.push("<th") == ("", "")
    assert splitter.push("ing>") == ("", "<thing>")
    splitter = ReasoningSplitter(inside=False)
    assert splitter.push(" <thi") == ("", "")
    assert splitter.finish() == ("", " <thi")


def test_tags_after_the_beginning_are_content() -> None:
    splitter = ReasoningSplitter(inside=False)
    assert splitter.push("a <think>b</think>") == ("", "a <think>b</think>")


@given(
    st.text("ab <>\n", max_size=30).map(lambda text: text.strip()),
    st.text("ab <>\n", max_size=30).map(lambda text: text.lstrip()),
    st.lists(st.integers(0, 80), max_size=12),
)
def test_cuts_change_nothing(reasoning: str, content: str, cuts: list[int]) -> None:
    text = f"<think>\n{reasoning}\n</think>\n\n{content}"
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    splitter = ReasoningSplitter(inside=False)
    parts = [splitter.push(piece) for piece in pieces] + [splitter.finish()]
    assert "".join(part[0] for part in parts) == reasoning
    assert "".join(part[1] for part in parts) == content


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [("<|Assistant|><think>\n", True), ("<|Assistant|>", False), ("<think>\n\n</think>\n\n", False)],
)
def test_the_prompt_tells_where_the_output_begins(prompt: str, opens: bool) -> None:
    assert prompt_opens_reasoning(prompt) is opens
