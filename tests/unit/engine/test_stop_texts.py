"""Stop texts that span tokens: what is held back, what leaves, and which of several wins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeseek.engine.stopping import StopTexts


def pushed(stops: Sequence[str], pieces: Sequence[str]) -> tuple[list[str], str | None]:
    """What leaves with each piece, the held rest last, and the stop text that was found."""
    texts = StopTexts(stops)
    out = []
    for piece in pieces:
        text, found = texts.push(piece)
        out.append(text)
        if found is not None:
            return out, found
    return [*out, texts.finish()], None


def test_a_stop_text_over_four_pieces_never_leaves() -> None:
    out, found = pushed(["beta gamma"], ["alpha", " be", "ta ga", "mma delta"])
    assert "".join(out) == "alpha "
    assert out == ["alpha", " ", "", ""]
    assert found == "beta gamma"


def test_text_that_turns_out_to_be_no_stop_text_leaves_at_once() -> None:
    assert pushed(["DEFGHIJ"], ["DEF", "G", "HI", "X"]) == (["", "", "", "DEFGHIX", ""], None)


def test_what_is_held_leaves_at_the_end() -> None:
    assert pushed(["DEFGHIJ"], ["DEF"]) == (["", "DEF"], None)


def test_only_what_may_still_become_a_stop_text_is_held() -> None:
    assert pushed(["abab!"], ["ababab"])[0] == ["ab", "abab"]


@pytest.mark.parametrize(
    ("stops", "text", "expected", "winner"),
    [
        (["b", "abc"], "xabc", "xa", "b"),
        (["bc", "abc"], "xabcd", "x", "abc"),
        (["abcd", "bc"], "xabcd", "xa", "bc"),
        (["abcd", "c"], "xabcd", "xab", "c"),
        (["\n\n", "User:"], "hi\nUser: x", "hi\n", "User:"),
        (["好吗"], "你好吗", "你", "好吗"),
    ],
)
def test_the_first_to_be_complete_wins_and_of_those_the_longest(
    stops: list[str], text: str, expected: str, winner: str
) -> None:
    out, found = pushed(stops, list(text))
    assert ("".join(out), found) == (expected, winner)
    assert StopTexts(stops).push(text) == (expected, winner)


def test_without_stop_texts_everything_leaves() -> None:
    assert pushed([], ["a", "", "b"]) == (["a", "", "b", ""], None)


LETTERS = st.text("ab", max_size=12)


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=5), st.lists(LETTERS, max_size=8))
def test_any_split_gives_the_text_up_to_the_first_stop_text(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    ends = [(end, -len(stop)) for stop in stops for end in range(len(text) + 1) if text[:end].endswith(stop)]
    out, found = pushed(stops, pieces)
    if ends:
        end, length = min(ends)
        assert ("".join(out), found) == (text[: end + length], text[end + length : end])
    else:
        assert ("".join(out), found) == (text, None)


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=5), st.lists(LETTERS, max_size=8))
def test_nothing_is_held_that_no_stop_text_begins_with(stops: list[str], pieces: list[str]) -> None:
    texts = StopTexts(stops)
    seen = left = ""
    for piece in pieces:
        seen += piece
        text, found = texts.push(piece)
        left += text
        if found is not None:
            return
        held = seen[len(left) :]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_thousands_of_stop_texts_cost_no_more_per_character_than_their_automaton() -> None:
    stops = [f"stop number {i}!" for i in range(5000)]
    texts = StopTexts(stops)
    assert texts.push("stop number 4999? stop number 17") == ("stop number 4999? ", None)
    assert texts.push("! and more") == ("", "stop number 17!")
