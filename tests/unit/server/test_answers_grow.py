"""The parts of an answer, from chunks as an engine delivers them."""

from __future__ import annotations

import pytest

from edgeseek.engine import Chunk, FinishReason
from edgeseek.errors import RuntimeFailure
from edgeseek.server.choices import ChatAnswer, joined_calls
from edgeseek.server.reasoning import prompt_opens_reasoning
from tests.unit.engine.fake_backend import FakeTokenizer


def chunks(*texts: str, reason: FinishReason = "stop") -> list[Chunk]:
    middle = [Chunk(text, (index,)) for index, text in enumerate(texts)]
    return [*middle, Chunk("", (), finish_reason=reason)]


def answer(prompt: str, tools: object = None) -> ChatAnswer:
    return ChatAnswer(
        FakeTokenizer(),  # type: ignore[arg-type]
        inside_reasoning=prompt_opens_reasoning(prompt),
        tool_calls=tools,  # type: ignore[arg-type]
    )


def test_reasoning_that_the_prompt_opened_is_told_apart() -> None:
    found = answer("<|Assistant|><think>\n")
    deltas = [found.take([chunk]) for chunk in chunks("17*3=51</th", "ink>\n\n51")]
    assert [delta.message for delta in deltas] == [
        {"reasoning_content": "17*3=51"},
        {"content": "51"},
        {},
    ]
    assert found.message() == {"role": "assistant", "content": "51", "reasoning_content": "17*3=51"}
    assert found.finish_reason == "stop"


def test_cut_off_in_its_reasoning_the_content_is_empty() -> None:
    found = answer("<think>\n")
    for chunk in chunks("17*3=51", " so</thi", reason="length"):
        assert "<" not in str(found.take([chunk]).message)
    assert found.message() == {"role": "assistant", "content": "", "reasoning_content": "17*3=51 so"}
    assert found.finish_reason == "length"
    assert found.reasoning_tokens == 2


def test_without_tags_all_is_content() -> None:
    found = answer("<|Assistant|>")
    found.take(chunks("17*3", "=51"))
    assert found.message() == {"role": "assistant", "content": "17*3=51"}


def test_an_answer_that_the_server_cut_off_is_an_error() -> None:
    with pytest.raises(RuntimeFailure, match="the server is stopping"):
        answer("").take(chunks("half", reason="cancelled"))


class OneCall:
    """Takes what stands between brackets for a call's arguments."""

    def __init__(self) -> None:
        self._open = False

    def push(self, text: str) -> tuple[str, list[dict]]:
        if text == "[":
            self._open = True
            call = {"index": 0, "id": "call_1", "type": "function"}
            return "", [{**call, "function": {"name": "f", "arguments": ""}}]
        if text == "]":
            self._open = False
            return "", []
        return ("", [{"index": 0, "function": {"arguments": text}}]) if self._open else (text, [])

    def finish(self) -> tuple[str, list[dict]]:
        return "", []


def test_calls_are_put_together_and_are_the_reason() -> None:
    found = answer("", OneCall())
    found.take(chunks("[", "{}", " ", "]"))
    assert found.finish_reason == "tool_calls"
    assert found.message() == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{} "}}],
    }
    assert joined_calls([]) == []
