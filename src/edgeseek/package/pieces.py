"""Streams planned tensors as packed bytes: rows read, restored in order, converted, interleaved.

A few pieces are worked on at once by a thread pool (numpy releases the interpreter lock) and delivered
in order, so memory holds a handful of pieces and never a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from edgeseek.architectures import TensorRule
from edgeseek.checkpoints.base import LazyTensor
from edgeseek.errors import UnsupportedCheckpointError
from edgeseek.package.ahead import in_order
from edgeseek.package.plan import PlannedTensor
from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS, split
from edgeseek.quantize.packing import Blocks, Floats, pack, values
from edgeseek.quantize.report import SquareSums, square_sums
from edgeseek.quantize.rtn import FLOAT_BYTES, RoundingError, float_blocks, floats, from_floats
from edgeseek.quantize.schemes import interleave

#: Weights in a piece: its arrays then stay in a core's own cache.
PIECE_WEIGHTS = 3 << 17

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Piece:
    """Packed bytes of consecutive rows of one planned tensor, and what rounding did to them."""

    data: Bytes
    last: bool
    sums: SquareSums


def stream(plans: Sequence[PlannedTensor], pool: Executor, ahead: int) -> Iterator[Piece]:
    """Pieces of all plans in order, at most `ahead` being worked on beyond the one delivered.

    Raises UnsupportedCheckpointError for values that the scheme cannot hold.
    """
    calls = (partial(make_piece, plan, start, stop) for plan in plans for start, stop in row_ranges(plan))
    return in_order(calls, pool, ahead)


def row_ranges(plan: PlannedTensor, weights: int = PIECE_WEIGHTS) -> Iterator[tuple[int, int]]:
    """Row ranges of about `weights` weights, cut at whole tiles and, where heads matter, whole heads."""
    rule = plan.rule
    if len(rule.shape) == 1:
        yield 0, 1
        return
    rows, columns = rule.shape
    unit = interleave(plan.layout)
    heads = rule.head_rows.heads if rule.head_rows else rule.unpermute_heads
    if heads:
        unit = math.lcm(unit, rows // heads)
    step = max(unit, weights // columns // unit * unit)
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def make_piece(plan: PlannedTensor, start: int, stop: int) -> Piece:
    """Read and pack rows [start, stop) of `plan`; for a vector, all of it."""
    rule = plan.rule
    raw = stored_rows(rule, plan.source, start, stop)
    try:
        if len(rule.shape) == 1:
            return _vector_piece(plan, raw)
        blocks, sums = _convert(plan, raw)
    except RoundingError as error:
        raise UnsupportedCheckpointError(
            f"tensor {rule.source!r} cannot become {plan.scheme}: {error}"
        ) from error
    return Piece(pack(blocks, plan.layout), stop == rule.shape[0], sums)


def stored_rows(rule: TensorRule, source: LazyTensor, start: int, stop: int) -> Bytes:
    """Stored bytes of what becomes rows [start, stop), in the package's order; a vector is one row.

    Where heads matter, `start` and `stop` are at whole heads.
    """
    part = rule.head_rows
    if part is None:
        raw = source.read_rows(rule.first_row + start, rule.first_row + stop)
    else:
        each = rule.shape[0] // part.heads
        first = [head * part.total + part.first for head in range(start // each, stop // each)]
        raw = np.concatenate([source.read_rows(row, row + part.count) for row in first])
    if not rule.unpermute_heads:
        return raw
    rows = raw if len(rule.shape) == 2 else raw.reshape(rule.shape[0], -1)
    head_dim = rule.shape[0] // rule.unpermute_heads
    return restore_head_rows(rows, head_dim, rule.unpermute_rows).reshape(raw.shape)


def restore_head_rows(rows: Bytes, head_dim: int, rotated: int = 0) -> Bytes:
    """Undo interleaving: of each head's last `rotated` rows (0: all), 2 j + h becomes h · rotated / 2 + j."""
    rotated = rotated or head_dim
    restored = rows.reshape(-1, head_dim, rows.shape[1]).copy()
    pairs = restored[:, head_dim - rotated :].reshape(-1, rotated // 2, 2, rows.shape[1])
    restored[:, head_dim - rotated :] = pairs.transpose(0, 2, 1, 3).reshape(-1, rotated, rows.shape[1])
    return restored.reshape(rows.shape)


def _vector_piece(plan: PlannedTensor, raw: Bytes) -> Piece:
    vector = floats(plan.source.dtype, raw)
    if not np.isfinite(vector).all():
        raise RoundingError("it holds values that are not finite")
    return Piece(np.ascontiguousarray(vector).view(np.uint8), True, SquareSums())


def _convert(plan: PlannedTensor, raw: Bytes) -> tuple[Blocks, SquareSums]:
    dtype, part = plan.source.dtype, plan.rule.head_rows
    if part is not None and part.transposed:
        return _rounded(plan, transposed_heads(as_floats(dtype, raw), part.count))
    if plan.action == "kept" and dtype in GGUF_BLOCKS:
        return split(dtype, raw), SquareSums()
    if plan.exact and dtype in FLOAT_BYTES:
        return float_blocks(dtype, raw, plan.scheme), SquareSums()
    return _rounded(plan, as_floats(dtype, raw))


def as_floats(dtype: str, raw: Bytes) -> Floats:
    """Stored rows of any type that is read, as float32."""
    return floats(dtype, raw) if dtype in FLOAT_BYTES else values(split(dtype, raw))


def transposed_heads(rows: Floats, count: int) -> Floats:
    """Heads of `count` rows each, transposed: [heads * count, n] becomes [heads * n, count]."""
    heads = rows.reshape(-1, count, rows.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(heads).reshape(-1, count)


def _rounded(plan: PlannedTensor, original: Floats) -> tuple[Blocks, SquareSums]:
    blocks = from_floats(original, plan.scheme)
    sums = SquareSums() if plan.exact else square_sums(original, values(blocks))
    return blocks, sums
