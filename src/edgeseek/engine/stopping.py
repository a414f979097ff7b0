"""When a generation ends, and which text may already leave.

`StopTexts` finds stop texts that span tokens with one automaton for all of them (Aho and Corasick,
CACM 18(6), 1975), so that a character costs the same for one stop text and for a thousand. Text is held
back only while it may still become a stop text. Knows nothing of logits or KV.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from edgeseek.engine.params import SamplingParams


class StopTexts:
    """Scans a stream of text for the first stop text to be completed; of several, the longest."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fallback: list[int] = [0]
        #: Characters that a state has matched: the longest suffix of the text that begins a stop text.
        self._depth: list[int] = [0]
        self._found: list[str | None] = [None]
        for text in texts:
            self._insert(text)
        self._link()
        self._state = 0
        self._held = ""

    def _insert(self, text: str) -> None:
        state = 0
        for char in text:
            after = self._next[state].get(char)
            if after is None:
                after = len(self._next)
                self._next[state][char] = after
                self._next.append({})
                self._fallback.append(0)
                self._depth.append(self._depth[state] + 1)
                self._found.append(None)
            state = after
        self._found[state] = text

    def _link(self) -> None:
        pending = deque(self._next[0].values())
        while pending:
            state = pending.popleft()
            for char, after in self._next[state].items():
                self._fallback[after] = self._step(self._fallback[state], char)
                pending.append(after)
            if self._found[state] is None:
                self._found[state] = self._found[self._fallback[state]]

    def _step(self, state: int, char: str) -> int:
        while char not in self._next[state]:
            if state == 0:
                return 0
            state = self._fallback[state]
        return self._next[state][char]

    def push(self, text: str) -> tuple[str, str | None]:
        """Add text; return what may leave, and the stop text that ended it, if one did."""
        if len(self._next) == 1:
            return text, None
        pending = self._held + text
        for end, char in enumerate(text, start=len(self._held) + 1):
            self._state = self._step(self._state, char)
            found = self._found[self._state]
            if found is not None:
                self._held = ""
                return pending[: end - len(found)], found
        free = len(pending) - self._depth[self._state]
        self._held = pending[free:]
        return pending[:free], None

    def finish(self) -> str:
        """What was held back; nothing more comes, so it is no stop text."""
        text, self._held, self._state = self._held, "", 0
        return text


class StopRules:
    """Token ids and the length that end one sequence."""

    def __init__(self, params: SamplingParams, eos_token_ids: Collection[int], max_tokens: int) -> None:
        self._eos = frozenset(eos_token_ids)
        self._ends = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos)
        self.max_tokens = max_tokens

    def ends(self, token: int) -> bool:
        """Whether this token ends the sequence; it then belongs to neither its ids nor its text."""
        return token in self._ends

    def is_silent(self, token: int) -> bool:
        """Whether the token's text is never shown: an end-of-sequence id that `ignore_eos` let pass."""
        return token in self._eos

    def is_full(self, generated: int) -> bool:
        """Whether a sequence with so many generated tokens is at its length."""
        return generated >= self.max_tokens
