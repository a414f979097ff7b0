"""Tensors as a GGUF stores them: rows read, rounded or kept, put in its order, a piece at a time.

Knows nothing of files or metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np

from edgeseek.errors import UnsupportedCheckpointError
from edgeseek.export.gguf_header import TensorInfo
from edgeseek.export.source import SourceTensor, has_codes, row_ranges
from edgeseek.package.ahead import in_order
from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS
from edgeseek.quantize.gguf_join import join
from edgeseek.quantize.packing import Bytes, Floats, values
from edgeseek.quantize.report import SquareSums, square_sums
from edgeseek.quantize.rounding import Rounding, RoundRows
from edgeseek.quantize.rtn import RoundingError

#: Weights in a piece that is not rounded to codes.
_PIECE_WEIGHTS = 1 << 16
#: Pieces that are worked on beyond the one delivered.
_AHEAD = 16


@dataclass(frozen=True)
class Plan:
    """A tensor to be written; `heads` are those whose rows the GGUF interleaves, 0 for none."""

    name: str
    info: TensorInfo
    wanted: str
    source: SourceTensor
    heads: int

    @property
    def rounded(self) -> bool:
        """Whether it becomes codes that the source does not hold."""
        return self.info.dtype in GGUF_BLOCKS and not self.kept

    @property
    def kept(self) -> bool:
        """Whether every value will be the source's."""
        dtype = self.info.dtype
        if dtype in GGUF_BLOCKS:
            return self.source.scheme == GGUF_BLOCKS[dtype].scheme
        exact = {"F32": ("f32", "f16", "bf16"), "F16": ("f16",), "BF16": ("bf16",)}
        return self.source.scheme in exact[dtype] or (dtype == "F32" and has_codes(self.source.scheme))


@dataclass(frozen=True)
class Piece:
    """Stored bytes of consecutive rows, what rounding did to them, and whether the tensor ends here."""

    data: Bytes
    sums: SquareSums
    last: bool


def stream(plans: Sequence[Plan], rounding: Rounding, pool: Executor) -> Iterator[Piece]:
    """Pieces of all tensors in order; a few are worked on ahead.

    Raises UnsupportedCheckpointError for values that the type cannot hold.
    """
    return in_order(_calls(plans, rounding), pool, _AHEAD)


def _calls(plans: Sequence[Plan], rounding: Rounding) -> Iterator[Callable[[], Piece]]:
    for plan in plans:
        unit = plan.info.shape[0] // plan.heads if plan.heads else 1
        # What a method needs for a matrix may be large, so it is prepared when its turn comes.
        round_rows = _rounder(plan, rounding)
        weights = rounding.piece_weights if plan.rounded else _PIECE_WEIGHTS
        for start, stop in row_ranges(plan.source, unit, weights):
            yield partial(_piece, plan, round_rows, start, stop)


def _rounder(plan: Plan, rounding: Rounding) -> RoundRows | None:
    if not plan.rounded:
        return None
    return rounding.prepare(plan.name, plan.info.shape[1], GGUF_BLOCKS[plan.info.dtype].scheme)


def _piece(plan: Plan, round_rows: RoundRows | None, start: int, stop: int) -> Piece:
    try:
        data, sums = _encode(plan, round_rows, start, stop)
    except (RoundingError, ValueError) as error:
        raise UnsupportedCheckpointError(
            f"tensor {plan.name!r} cannot become {plan.info.dtype}: {error}"
        ) from error
    if plan.heads:
        rows = plan.info.shape[0]
        items = data if len(plan.info.shape) == 2 else data.reshape(rows, -1)
        data = interleave_head_rows(items, rows // plan.heads).reshape(data.shape)
    return Piece(data, sums, stop == plan.info.shape[0] or len(plan.info.shape) == 1)


def interleave_head_rows(rows: Bytes, head_dim: int) -> Bytes:
    """GGUF's order of a llama's Q and K rows: within each head, row h · head_dim / 2 + j becomes 2 j + h."""
    heads = rows.reshape(-1, 2, head_dim // 2, rows.shape[1])
    return np.ascontiguousarray(heads.transpose(0, 2, 1, 3)).reshape(rows.shape)


def _encode(plan: Plan, round_rows: RoundRows | None, start: int, stop: int) -> tuple[Bytes, SquareSums]:
    dtype = plan.info.dtype
    if dtype in GGUF_BLOCKS and plan.kept:
        return join(dtype, plan.source.blocks(start, stop)), SquareSums()
    original = plan.source.floats(start, stop)
    if round_rows is not None:
        blocks = round_rows(original)
        return join(dtype, blocks), square_sums(original, values(blocks))
    if not np.isfinite(original).all():
        raise RoundingError("it holds values that are not finite")
    stored, back = _as_floats(original, dtype)
    return stored, SquareSums() if plan.kept else square_sums(original, back)


def _as_floats(rows: Floats, dtype: str) -> tuple[Bytes, Floats]:
    """Rows stored as F32, F16 or BF16, rounded to nearest, ties to even, and what they then hold."""
    if dtype == "F16":
        with np.errstate(over="ignore"):
            halves = rows.astype("<f2")
        if not np.isfinite(halves).all():
            raise RoundingError(f"it holds {np.abs(rows).max():g}, and a half ends at 65504")
        return halves.view(np.uint8), halves.astype(np.float32)
    bits = np.ascontiguousarray(rows, "<f4").view("<u4")
    if dtype == "BF16":
        upper = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
        return upper.astype("<u2").view(np.uint8), (upper << np.uint32(16)).view("<f4")
    return bits.view(np.uint8), rows
