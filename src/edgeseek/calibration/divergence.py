"""How far a model's predictions are from another's: mean KL divergence over a text, and both perplexities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeseek.calibration.perplexity import negative_log_likelihood
from edgeseek.engine.block_manager import blocks_for
from edgeseek.errors import RuntimeFailure, UsageError
from edgeseek.llm import LLM
from edgeseek.runtime.backend import Backend, Slice

WINDOW = 256
#: Rows of probabilities in memory at once.
_ROWS_AT_ONCE = 16
#: Rows of logits of one step.
_STEP_ROWS = 64

Progress = Callable[[int, int], None]
Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Divergence:
    """Of a model from a reference: `mean_kl` in nats a token, and perplexities over the same tokens."""

    mean_kl: float
    perplexity: float
    reference_perplexity: float
    tokens: int


def divergence(
    model: LLM,
    reference: LLM,
    ids: Sequence[int],
    window: int = WINDOW,
    *,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Divergence:
    """KL(reference ‖ model) of the next token's distribution, averaged over every position of every window.

    `ids` is cut into windows that do not overlap, each run from position 0; `limit` bounds their number.
    Raises UsageError for different vocabularies or fewer ids than a window, RuntimeFailure for logits that
    are not finite.
    """
    if model.config.vocab_size != reference.config.vocab_size:
        raise UsageError(
            f"the models' vocabularies have {model.config.vocab_size} and {reference.config.vocab_size} "
            "tokens; only models of one vocabulary can be compared"
        )
    count = min(len(ids) // window, limit or len(ids))
    if count == 0:
        raise UsageError(
            f"the text has {len(ids)} tokens, less than one window of {window}; give a longer text"
        )
    kl = ours = theirs = 0.0
    for index in range(count):
        part = ids[index * window : (index + 1) * window]
        found, truth = _logits(model, part), _logits(reference, part)
        targets = np.asarray(part[1:], np.int64)
        kl += kl_divergence(truth, found)
        ours += negative_log_likelihood(found[:-1], targets)
        theirs += negative_log_likelihood(truth[:-1], targets)
        if progress is not None:
            progress(index + 1, count)
    scored = count * (window - 1)
    return Divergence(
        kl / (count * window), math.exp(ours / scored), math.exp(theirs / scored), count * window
    )


def kl_divergence(truth: Logits, found: Logits) -> float:
    """Sum over rows of KL(softmax(truth) ‖ softmax(found)) in nats; logits [rows, vocab].

    Taken in float64 from differences of logits, so that equal logits give exactly 0.
    """
    total = 0.0
    for start in range(0, len(truth), _ROWS_AT_ONCE):
        p = truth[start : start + _ROWS_AT_ONCE].astype(np.float64)
        q = found[start : start + _ROWS_AT_ONCE].astype(np.float64)
        p -= _log_sum_exp(p)
        q -= _log_sum_exp(q)
        total += float((np.exp(p) * (p - q)).sum())
    if not math.isfinite(total):
        raise RuntimeFailure("a logit is not finite; the weights or an activation overflowed")
    return total


def _log_sum_exp(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    highest = rows.max(axis=1, keepdims=True)
    result: npt.NDArray[np.float64] = highest + np.log(np.exp(rows - highest).sum(axis=1, keepdims=True))
    return result


def _logits(llm: LLM, tokens: Sequence[int]) -> Logits:
    """[tokens, vocab] of a window from position 0."""

    def work(backend: Backend, blocks: list[int]) -> Logits:
        rows = []
        for past in range(0, len(tokens), _STEP_ROWS):
            part = tokens[past : past + _STEP_ROWS]
            rows.append(
                backend.forward([Slice(tokens=part, past=past, block_table=blocks, logits="all")]).copy()
            )
        return np.concatenate(rows)

    return llm.engine.borrow(blocks_for(len(tokens)), work)
