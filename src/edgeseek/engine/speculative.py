"""Speculation without a draft model: guess the next tokens from the sequence's own.

Answers repeat their prompt (code being edited, quoted text) and themselves. `PromptLookup` finds where the
last tokens occurred before and proposes what followed there (prompt lookup decoding, A. Saxena, 2023); one
step verifies the proposal. How many tokens pay is decided by `StepCosts`, what a step of so many rows takes
on this machine, and by how often proposals came true; a sequence whose proposals fail gets none, and is
judged on by what they would have been, which costs nothing. Knows nothing of KV or scheduling, and never
changes an answer: a proposal is kept only where the draw that plain decoding makes equals it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Tokens verified with a step at most, all sequences together, the certain ones included: rows beyond cost
#: as much as steps of their own.
MAX_ROWS = 16
_LONGEST = 3
_SHORTEST = 2
_CONTEXT = 16
#: Chances that a proposed token is right, before anything is known: after a substitution, and after a match
#: of 1–3, 4–7 and 8 or more tokens.
_PRIORS = (0.3, 0.4, 0.6, 0.8)
#: Weight of one observation.
_RATE = 0.12
#: Gain over plain decoding below which nothing is proposed.
_WORTH = 1.05


@dataclass(frozen=True)
class Draft:
    """Proposed tokens, and how much of the text before them matched where they were found."""

    tokens: tuple[int, ...]
    kind: int


class PromptLookup:
    """Proposals for one sequence.

    `tokens` is the sequence's own list, which may only grow. A look costs the same at every length; the
    index holds two entries for each token.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0
        #: Where the text continues if it goes on copying what it copied last; 0 if it did not.
        self._cursor = 0
        self._chance = list(_PRIORS)
        self._next: Draft | None = None

    def propose(self, limit: int, costs: StepCosts, rows: int) -> tuple[int, ...]:
        """Up to `limit` tokens that are worth a place in a step that has `rows` rows already, or none."""
        self._index()
        place, kind = self._find()
        if place == 0:
            self._next = None
            return ()
        self._cursor = place
        self._next = Draft((self._tokens[place],), kind)
        length = min(costs.best_length(self._chance[kind], rows), limit)
        if length <= 0:
            return ()
        tokens = list(self._tokens[place : place + length])
        while len(tokens) < length:  # the text repeats itself with a short period
            tokens.append(tokens[len(tokens) - (len(self._tokens) - place)])
        self._next = Draft(tuple(tokens), kind)
        return self._next.tokens

    def learn(self, drawn: Sequence[int]) -> None:
        """Judge the last proposal, or what it would have been, by the tokens drawn since."""
        draft, self._next = self._next, None
        if draft is None:
            return
        for proposed, token in zip(draft.tokens, drawn, strict=False):
            right = proposed == token
            self._chance[draft.kind] += _RATE * (right - self._chance[draft.kind])
            if not right:
                break
        # A wrong token counts as a substitution: the copy may go on behind it.
        self._cursor = min(self._cursor + len(drawn), len(self._tokens) - 1)

    def _index(self) -> None:
        """Take in n-grams that have a token after them; the latest occurrence wins."""
        tokens, after = self._tokens, self._after
        for end in range(max(self._indexed, _SHORTEST), len(tokens)):
            after[tokens[end - 2], tokens[end - 1]] = end
            if end >= _LONGEST:
                after[tokens[end - 3], tokens[end - 2], tokens[end - 1]] = end
        self._indexed = len(tokens)

    def _find(self) -> tuple[int, int]:
        """Where the continuation starts (0: nowhere), and the kind of match."""
        tokens, cursor = self._tokens, self._cursor
        following = self._matched(cursor) if cursor else 0
        if following >= _SHORTEST:
            return cursor, _kind(following)
        for size in range(_LONGEST, _SHORTEST - 1, -1):
            place = self._after.get(tuple(tokens[-size:]), 0) if len(tokens) >= size else 0
            if place:
                return place, _kind(self._matched(place))
        return cursor, min(following, 1)

    def _matched(self, place: int) -> int:
        """How many tokens before `place` equal the last ones, up to _CONTEXT."""
        tokens = self._tokens
        most = min(place, _CONTEXT)
        for back in range(1, most + 1):
            if tokens[place - back] != tokens[-back]:
                return back - 1
        return most


def _kind(matched: int) -> int:
    return 3 if matched >= 8 else 2 if matched >= 4 else 1


class StepCosts:
    """What a step of so many rows takes, relative to each other, learnt from the steps themselves."""

    _SIZES = (1, 2, 4, 8, 16)
    #: Until measured: rows share the reading of weights.
    _GUESS = (1.0, 1.1, 1.3, 1.9, 3.2)

    def __init__(self) -> None:
        self._seconds: list[float | None] = [None] * len(self._SIZES)
        self._tabled: list[float] = []
        #: Cost of a step of 0, 1, ... MAX_ROWS rows, renewed by `note`.
        self._costs = self._table()

    def note(self, rows: int, seconds: float) -> None:
        """Record a step of `rows` single-token rows; those between the known sizes are left out."""
        if rows not in self._SIZES or seconds <= 0:
            return
        i = self._SIZES.index(rows)
        known = self._seconds[i]
        # A step that was held up says little about the next.
        new = seconds if known is None else known + 0.1 * (min(seconds, 2 * known) - known)
        self._seconds[i] = new
        # A change that decides nothing is not worth a new table.
        if known is None or abs(new - self._tabled[i]) > 0.02 * self._tabled[i]:
            self._costs = self._table()

    def _table(self) -> list[float]:
        known = [(s, g) for s, g in zip(self._seconds, self._GUESS, strict=True) if s is not None]
        unit = sum(s / g for s, g in known) / len(known) if known else 1.0
        costs = [s if s is not None else g * unit for s, g in zip(self._seconds, self._GUESS, strict=True)]
        self._tabled = list(costs)
        # More rows never cost less; noise in the figures must not say so.
        for i in range(1, len(costs)):
            costs[i] = max(costs[i], costs[i - 1])
        table = [0.0, costs[0]]
        for i in range(1, len(costs)):
            low, high = self._SIZES[i - 1], self._SIZES[i]
            step = (costs[i] - costs[i - 1]) / (high - low)
            table += [costs[i - 1] + step * k for k in range(1, high - low + 1)]
        return table

    def of(self, rows: int) -> float:
        """Cost of a step of `rows` rows; only ratios mean something."""
        table = self._costs
        return table[rows] if rows <= MAX_ROWS else table[-1] * rows / MAX_ROWS

    def best_length(self, chance: float, rows: int) -> int:
        """Proposed tokens that yield most tokens per time beside `rows` rows, 0 if none pays.

        Each is right with `chance` if those before it were, so k of them yield
        1 + chance + ... + chance^k tokens (Leviathan et al., arXiv 2211.17192, equation 1).
        """
        base = self.of(rows) / rows
        best, length = _WORTH, 0
        tokens, power = 1.0, 1.0
        for k in range(1, MAX_ROWS - rows + 1):
            power *= chance
            tokens += power
            # The others in the step gain nothing and wait: their tokens count in both.
            gain = (rows - 1 + tokens) * base / self._costs[rows + k]
            if gain > best:
                best, length = gain, k
        return length
