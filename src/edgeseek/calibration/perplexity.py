"""How well a model predicts a text: perplexity over windows that do not overlap.

The text is tokenized whole, without a BOS, and cut into windows; the last partial one is dropped. Each
window starts from position 0 and its first token is not scored. The result is exp of the mean negative
log-likelihood of all scored tokens, with natural logarithms and sums in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeseek.engine.block_manager import blocks_for
from edgeseek.errors import RuntimeFailure, UsageError
from edgeseek.llm import LLM
from edgeseek.runtime.backend import Backend, Slice

#: Bytes of logits that one forward may return; a row is 4 bytes times the vocabulary (608 KB for Qwen2).
_LOGIT_BYTES = 40 << 20
_MAX_ROWS = 512
#: Rows of exponentials in memory at once.
_ROWS_AT_ONCE = 8


@dataclass(frozen=True)
class PerplexityResult:
    """`tokens` were scored, in `windows` windows of `window` tokens; `mean_nll` is in nats."""

    perplexity: float
    mean_nll: float
    tokens: int
    windows: int
    window: int


def perplexity(
    llm: LLM,
    text: str | Items[int],
    window: int = 512,
    *,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> PerplexityResult:
    """Perplexity of `llm` on a text, or on token ids.

    `progress` is called with ("perplexity", tokens done, tokens in all). Other requests may run in
    between. Raises UsageError if `window` exceeds the context or the text is shorter than one window,
    RuntimeFailure if a logit is not finite.
    """
    if window < 2:
        raise UsageError(f"the window is {window} tokens; it needs at least 2 to score one")
    if window > llm.context:
        raise UsageError(
            f"the window is {window} tokens and the context holds {llm.context}; use a smaller one"
        )
    ids = llm.tokenizer.encode(text) if isinstance(text, str) else list(text)
    count = len(ids) // window
    if count == 0:
        raise UsageError(
            f"the text has {len(ids)} tokens, less than one window of {window}; give a longer text"
        )
    rows = max(1, min(_MAX_ROWS, _LOGIT_BYTES // (4 * llm.config.vocab_size)))
    together = max(1, min(rows // window, llm.backend.num_blocks // blocks_for(window)))
    total = 0.0
    for first in range(0, count, together):
        batch = [ids[i * window : (i + 1) * window] for i in range(first, min(first + together, count))]
        total += _score(llm, batch, rows)
        if progress is not None:
            progress("perplexity", (first + len(batch)) * window, count * window)
    scored = count * (window - 1)
    return PerplexityResult(_exp(total / scored), total / scored, scored, count, window)


def _score(llm: LLM, windows: Items[Items[int]], rows: int) -> float:
    """Sum of -log p over the windows' tokens but the first of each."""
    length = len(windows[0])
    per_window = blocks_for(length)
    chunk = max(1, rows // len(windows))

    def work(backend: Backend, blocks: list[int]) -> float:
        tables = [blocks[i * per_window : (i + 1) * per_window] for i in range(len(windows))]
        total = 0.0
        # The last token predicts nothing that is scored.
        for past in range(0, length - 1, chunk):
            end = min(past + chunk, length - 1)
            parts = [
                Slice(tokens=w[past:end], past=past, block_table=table[: blocks_for(end)], logits="all")
                for w, table in zip(windows, tables, strict=True)
            ]
            logits = backend.forward(parts)
            targets = np.concatenate([np.asarray(w[past + 1 : end + 1], np.int64) for w in windows])
            total += negative_log_likelihood(logits, targets)
        return total

    return llm.engine.borrow(per_window * len(windows), work)


def negative_log_likelihood(logits: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]) -> float:
    """Sum over rows of -log softmax(logits)[target]; logits [rows, vocab], targets [rows].

    Exponentials are taken in float32 (relative error 1e-7, several times as fast over a large
    vocabulary), sums and logarithms in float64.
    """
    total = 0.0
    for start in range(0, len(targets), _ROWS_AT_ONCE):
        part = logits[start : start + _ROWS_AT_ONCE]
        target = targets[start : start + _ROWS_AT_ONCE]
        highest = part.max(axis=1, keepdims=True)
        sums = np.exp(part - highest).sum(axis=1, dtype=np.float64)
        chosen = (part[np.arange(len(target)), target] - highest[:, 0]).astype(np.float64)
        total += float((np.log(sums) - chosen).sum())
    if not math.isfinite(total):
        raise RuntimeFailure("a logit is not finite; the weights or an activation overflowed")
    return total


def _exp(mean_nll: float) -> float:
    return math.exp(mean_nll) if mean_nll < 700 else math.inf
