"""Splits a model's output at `<think>…</think>` into reasoning and answer, while it streams."""

from __future__ import annotations

from typing import Literal

OPEN, CLOSE = "<think>", "</think>"


def prompt_opens_reasoning(prompt: str) -> bool:
    """Whether a rendered prompt ends with an open `<think>`, so that the output begins inside it."""
    return prompt.rstrip().endswith(OPEN)


class ReasoningSplitter:
    """Takes text in pieces and gives (reasoning, content); text that may become a tag is held back.

    Reasoning is what stands inside a pair of tags at the very beginning, without the white space around
    it; later tags are content. With `inside` the opening tag was in the prompt. Both parts of all calls
    joined are the output less the tags and that white space.
    """

    def __init__(self, *, inside: bool) -> None:
        self._state: Literal["start", "reasoning", "gap", "content"] = "start"
        self._inside = inside
        self._started = False
        self._held = ""

    @property
    def is_reasoning(self) -> bool:
        """Whether what comes next is reasoning, as far as is known."""
        return self._state == "reasoning" or (self._state == "start" and self._inside)

    def push(self, text: str) -> tuple[str, str]:
        """Add text; return what is certain to be reasoning and what is certain to be content."""
        self._held += text
        reasoning = content = ""
        if self._state == "start" and not self._begin():
            return "", ""
        if self._state == "reasoning":
            reasoning = self._reason()
        if self._state == "gap":
            self._held = self._held.lstrip()
            if self._held:
                self._state = "content"
        if self._state == "content":
            content, self._held = self._held, ""
        return reasoning, content

    def finish(self) -> tuple[str, str]:
        """The end: what was held back and is no part of a tag after all."""
        held, self._held = self._held, ""
        if self._state == "start" and not self._inside:
            return "", held
        # Inside, what is held back is white space and the beginning of a closing tag.
        return "", ""

    def _begin(self) -> bool:
        """Find out whether the output begins with the opening tag; False while that is open."""
        text = self._held.lstrip()
        if len(text) < len(OPEN) and OPEN.startswith(text):
            return False
        if text.startswith(OPEN):
            self._held = text[len(OPEN) :]
            self._state = "reasoning"
        elif self._inside:
            self._state = "reasoning"
        else:
            self._state = "content"
        return True

    def _reason(self) -> str:
        if not self._started:
            self._held = self._held.lstrip()
            self._started = bool(self._held)
        at = self._held.find(CLOSE)
        if at >= 0:
            reasoning, self._held = self._held[:at].rstrip(), self._held[at + len(CLOSE) :]
            self._state = "gap"
            return reasoning
        keep = next((n for n in range(len(CLOSE) - 1, 0, -1) if self._held.endswith(CLOSE[:n])), 0)
        free = self._held[: len(self._held) - keep].rstrip()
        self._held = self._held[len(free) :]
        return free
