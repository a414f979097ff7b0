"""Text out of a stream of tokens, as early as UTF-8 allows and never earlier.

Owns the bytes of a character that has begun but not ended. Knows nothing of vocabularies: it is
given a function from id to bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType


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
        self._held = b""

    @property
    def pending(self) -> bytes:
        """Bytes of a character that is not complete yet (at most 3)."""
        return self._held

    def push(self, token_id: int) -> str:
        """Take one token; return the text that is complete now, often "" inside a character."""
        return self.push_bytes(self._token_bytes(token_id))

    def push_bytes(self, data: bytes) -> str:
        """Take raw bytes; return the text that is complete now."""
        data = self._held + data
        complete = len(data) - _unfinished(data)
        self._held = data[complete:]
        return self._stripped(data[:complete].decode("utf-8", "replace"))

    def finish(self) -> str:
        """End the stream: an incomplete character becomes one U+FFFD. The decoder can be used again."""
        text = self._stripped(self._held.decode("utf-8", "replace"))
        self._held = b""
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


#: First byte -> range of the second byte, where it is narrower than 80..BF: overlong forms, surrogates
#: and code points beyond U+10FFFF are malformed from the second byte on (Unicode 15, table 3-7).
_SECOND_BYTES = MappingProxyType(
    {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
)


def _unfinished(data: bytes) -> int:
    """Length of the longest end of `data` that further bytes can make one character, 0 to 3.

    CPython's own incremental decoder is not used: it keeps ED A0, which nothing can complete.
    """
    for count in range(1, min(3, len(data)) + 1):
        first = data[-count]
        if 0x80 <= first <= 0xBF:
            continue
        size = (
            2 if 0xC2 <= first <= 0xDF else 3 if first & 0xF0 == 0xE0 else 4 if 0xF0 <= first <= 0xF4 else 0
        )
        if size <= count:
            return 0
        low, high = _SECOND_BYTES.get(first, (0x80, 0xBF))
        return count if count == 1 or low <= data[1 - count] <= high else 0
    return 0
