"""Text out of a stream of tokens, as early as UTF-8 allows and never earlier.

Owns the bytes of a character that has begun but not ended. Knows nothing of vocabularies: it is
given a function from id to bytes.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable


class StreamDecoder:
    """Incremental decoder over token bytes.

    All text returned by `push`, `push_bytes` and `finish`, joined, equals
    `b"".join(pieces).decode("utf-8", "replace")` (less `strip_left` leading spaces), however the
    bytes were split: malformed bytes become U+FFFD as CPython replaces them (one for each maximal
    ill-formed part, Unicode 15 section 3.9), and a token that spells U+FFFD itself passes at once.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], *, strip_left: int = 0) -> None:
        self._token_bytes = token_bytes
        self._strip_left = strip_left
        self._left_to_strip = strip_left
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def pending(self) -> bytes:
        """Bytes of a character that is not complete yet (at most 3)."""
        return self._decoder.getstate()[0]

    def push(self, token_id: int) -> str:
        """Take one token; return the text that is complete now, often "" inside a character."""
        return self.push_bytes(self._token_bytes(token_id))

    def push_bytes(self, data: bytes) -> str:
        """Take raw bytes; return the text that is complete now."""
        return self._stripped(self._decoder.decode(data))

    def finish(self) -> str:
        """End the stream: an incomplete character becomes one U+FFFD. The decoder can be used again."""
        text = self._stripped(self._decoder.decode(b"", final=True))
        self._decoder.reset()
        self._left_to_strip = self._strip_left
        return text

    def _stripped(self, text: str) -> str:
        while self._left_to_strip and text:
            if text[0] != " ":
                self._left_to_strip = 0
                break
            text = text[1:]
            self._left_to_strip -= 1
        return text
