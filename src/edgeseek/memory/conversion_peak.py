"""What importing a checkpoint, or quantizing it without a text, takes at its peak.

A conversion streams: each thread works on a piece of some hundred thousand weights, a few finished pieces
wait to be written, and of the checkpoint's mapping a fixed window stays resident (`package.pieces`,
`checkpoints.mapping`). So the peak hardly grows with the model, only with its vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeseek.architectures import ModelConfig
from edgeseek.checkpoints.base import Checkpoint

if TYPE_CHECKING:
    from edgeseek.package.plan import PlannedTensor

_MIB = 1 << 20
#: Private memory of interpreter, numpy and tokenizers before anything is read.
_BASE = 20 * _MIB
#: Pages of the interpreter and of shared libraries; the core is not needed.
_LIBRARIES = 18 * _MIB
#: The vocabulary as it is read, turned into a tokenizer file and held until the package is complete.
_PER_VOCABULARY_ENTRY = 320
#: Arrays as large as a piece's fp32 values that rounding holds at once, and that copying stored blocks does.
_ROUNDING_COPIES = 5
_KEEPING_COPIES = 2


@dataclass(frozen=True)
class ConversionPeak:
    """Peak bytes of the process that imports; the pages of files may be dropped where memory is short."""

    anonymous: int
    file_backed: int

    @property
    def needed(self) -> int:
        """Sum of both."""
        return self.anonymous + self.file_backed


def conversion_peak(
    checkpoint: Checkpoint, config: ModelConfig, plans: Sequence[PlannedTensor], threads: int
) -> ConversionPeak:
    """The peak of importing `checkpoint` by `plans` on `threads` threads, four of which work at most.

    Without plans (a bare config) the pieces are taken for rounded ones of the usual size.
    """
    from edgeseek.checkpoints.mapping import RESIDENT_BYTES
    from edgeseek.package.conversion import MAX_THREADS
    from edgeseek.package.pieces import PIECE_WEIGHTS, row_ranges

    workers = max(1, min(threads, MAX_THREADS))
    piece, copies = PIECE_WEIGHTS, _KEEPING_COPIES if plans else _ROUNDING_COPIES
    for plan in plans:
        if len(plan.rule.shape) == 2:
            start, stop = next(iter(row_ranges(plan)))
            piece = max(piece, (stop - start) * plan.rule.shape[1])
        if plan.action != "kept":
            copies = _ROUNDING_COPIES
    stored = sum(_size(tensor.dtype, tensor.shape) for tensor in checkpoint.tensors.values())
    window = min(RESIDENT_BYTES, stored) if plans else RESIDENT_BYTES
    waiting = (workers + 2) * piece
    anonymous = _BASE + config.vocab_size * _PER_VOCABULARY_ENTRY + workers * piece * 4 * copies + waiting
    return ConversionPeak(anonymous, _LIBRARIES + window + workers * piece)


def hessian_bytes(config: ModelConfig) -> int:
    """Bytes of the largest Hessian that gptq gathers and inverts, one at a time at least.

    36 for the square of the columns: gathered in fp32, inverted in fp64 (`calibration.statistics`). It comes
    beside the model at work. An inner width of experts is smaller and does not count.
    """
    return 36 * max(config.hidden_size, config.attention_width, config.intermediate_size) ** 2


def _size(dtype: str, shape: tuple[int, ...]) -> int:
    """Stored bytes, at most: of a type whose blocks are unknown, 4 bytes a weight."""
    from math import prod

    from edgeseek.checkpoints.tensor_types import BLOCKS

    values, size = BLOCKS.get(dtype, (1, 4))
    return prod(shape) // values * size
