"""Sampling policy: which penalties, cuts and seed apply to a sequence's next token.

The chain is penalties (repetition, then frequency and presence) → bias → temperature → top-k → top-p →
min-p → draw. The draw is a function of (seed, position) and the logits alone: neither the batch nor
earlier draws matter, so a preempted or retried sequence continues as if nothing had happened. The work
on a row of logits is done by the backend (`native/include/edgeseek/sample.h` says exactly how).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from edgeseek.engine.params import SamplingParams
from edgeseek.runtime.backend import SampleRow

_NO_IDS: npt.NDArray[np.int32] = np.zeros(0, np.int32)
_NO_IDS.flags.writeable = False


class TokenTally:
    """Distinct token ids and how often each was added, as arrays that grow by doubling."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._slots: dict[int, int] = {}
        self._ids = np.zeros(64, np.int32)
        self._counts = np.zeros(64, np.int32)
        for token in tokens:
            self.add(token)

    def add(self, token: int) -> None:
        """Count one more occurrence."""
        slot = self._slots.setdefault(token, len(self._slots))
        if slot == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[slot] = token
        self._counts[slot] += 1

    @property
    def ids(self) -> npt.NDArray[np.int32]:
        """[distinct] ids in order of first occurrence."""
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> npt.NDArray[np.int32]:
        """[distinct] occurrences, parallel to `ids`."""
        return self._counts[: len(self._slots)]


class SamplingState:
    """One sequence's sampling parameters and the token counts that its penalties need."""

    def __init__(self, params: SamplingParams, prompt: Iterable[int]) -> None:
        self.params = params
        self.seed = secrets.randbits(64) if params.seed is None else params.seed
        repetition = params.repetition_penalty != 1.0
        counts = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
        self._seen = TokenTally(prompt) if repetition else None
        self._output = TokenTally() if counts else None
        self._bias_ids = np.fromiter(params.logit_bias.keys(), np.int32, len(params.logit_bias))
        self._bias_values = np.fromiter(params.logit_bias.values(), np.float32, len(params.logit_bias))

    def accept(self, token: int) -> None:
        """Count a token that was added to the output."""
        if self._seen is not None:
            self._seen.add(token)
        if self._output is not None:
            self._output.add(token)

    def row(self, position: int) -> SampleRow:
        """What the backend needs to draw the token at `position`; valid until the next `accept`."""
        params = self.params
        return SampleRow(
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            seen_ids=_NO_IDS if self._seen is None else self._seen.ids,
            output_ids=_NO_IDS if self._output is None else self._output.ids,
            output_counts=_NO_IDS if self._output is None else self._output.counts,
            bias_ids=self._bias_ids,
            bias_values=self._bias_values,
            seed=self.seed,
            position=position,
            top_logprobs=-1 if params.logprobs is None else params.logprobs,
        )
