"""The sampling chain of native/include/edgeseek/sample.h in plain numpy, by sorting everything."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgeseek.runtime.backend import Sample, SampleRow

Floats = npt.NDArray[np.float32]
MASK = 2**32 - 1


def random_bits(seed: int, position: int) -> int:
    """First two words of Philox4x32-10 with key = seed, counter = position."""
    c = [position & MASK, position >> 32, 0, 0]
    k = [seed & MASK, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c[1] << 32 | c[0]


def sample(logits: Floats, row: SampleRow) -> Sample:
    """One token for logits [vocab]."""
    if not np.isfinite(logits).all():
        raise ValueError(f"logit {int(np.argmin(np.isfinite(logits)))} is not finite")
    adjusted = _adjusted(logits, row)
    token = int(adjusted.argmax()) if row.temperature == 0 else _drawn(adjusted, row)
    if row.top_logprobs < 0:
        return Sample(token, 0.0)
    wide = logits.astype(np.float64)
    logprobs = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    top = np.argsort(-wide, kind="stable")[: row.top_logprobs]
    return Sample(token, float(logprobs[token]), tuple(map(int, top)), tuple(float(logprobs[i]) for i in top))


def _adjusted(logits: Floats, row: SampleRow) -> Floats:
    out = logits.copy()
    seen = out[row.seen_ids]
    penalty = np.float32(row.repetition_penalty)
    out[row.seen_ids] = np.where(seen > 0, seen / penalty, seen * penalty)
    frequency = np.float32(row.frequency_penalty) * row.output_counts.astype(np.float32)
    out[row.output_ids] = out[row.output_ids] - frequency - np.float32(row.presence_penalty)
    out[row.bias_ids] += row.bias_values
    return out


def _drawn(adjusted: Floats, row: SampleRow) -> int:
    order = np.argsort(-adjusted, kind="stable")
    if 0 < row.top_k < len(order):
        order = order[: row.top_k]
    scaled = (adjusted[order] - adjusted.max()) / np.float32(row.temperature)
    ratios = np.exp(scaled.astype(np.float64)).astype(np.float32)
    weights = (ratios.astype(np.float64) * 2.0**44).astype(np.int64)
    reached = np.cumsum(weights).astype(np.float64) >= row.top_p * float(weights.sum())
    if row.top_p < 1.0:
        kept = int(reached.argmax()) + 1
        order, weights = order[:kept], weights[:kept]
    likely = weights.astype(np.float64) >= row.min_p * float(weights[0])
    order, weights = order[likely], weights[likely]
    by_id = np.argsort(order)
    order, weights = order[by_id], weights[by_id]
    left = random_bits(row.seed, row.position) * int(weights.sum()) >> 64
    return int(order[int((np.cumsum(weights) > left).argmax())])
