"""Text of one sequence on its way out: bytes → complete characters → stop texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgeseek.engine.stopping import StopTexts
from edgeseek.tokenizer.stream import StreamDecoder


class TextSource(Protocol):
    """The part of a tokenizer that the engine needs."""

    def stream(self) -> StreamDecoder:
        """A decoder for one sequence's output."""
        ...


class TextStream:
    """Turns tokens into text that can no longer change; after a stop text, no more may be pushed."""

    def __init__(self, tokenizer: TextSource, stop: Sequence[str]) -> None:
        self._decoder = tokenizer.stream()
        self._stops = StopTexts(stop)

    def push(self, token: int) -> tuple[str, str | None]:
        """Text that leaves with `token`, and the stop text it completed, if it did."""
        return self._stops.push(self._decoder.push(token))

    def finish(self) -> tuple[str, str | None]:
        """The rest, at the end: what a stop text held back, and U+FFFD for a character cut short."""
        text, matched = self._stops.push(self._decoder.finish())
        return (text, matched) if matched is not None else (text + self._stops.finish(), None)
