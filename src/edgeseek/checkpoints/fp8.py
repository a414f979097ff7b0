"""Weights of 8-bit floats with a scale for each block of 128 × 128, as DeepSeek-V3 publishes its own.

A tensor `NAME.weight` of type F8_E4M3 goes with `NAME.weight_scale_inv`, fp32, one number for each block
begun; a weight is its float times its block's number (`weight_dequant` in DeepSeek-V3's
inference/kernel.py). The 8-bit floats are those of "FP8 Formats for Deep Learning", arXiv 2209.05433: 1 sign,
4 exponent (bias 7) and 3 mantissa bits, no infinities. Owns that pairing and the numbers; knows nothing of
folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from edgeseek.checkpoints.base import LazyTensor
from edgeseek.checkpoints.mapping import MappedTensor
from edgeseek.errors import CheckpointFormatError, MissingTensorError

DTYPE = "F8_E4M3"
SCALE_SUFFIX = "_scale_inv"
#: Rows and columns of a block that shares a scale.
BLOCK = 128


@dataclass(frozen=True)
class BlockScaledTensor:
    """A `LazyTensor` whose rows come with the scales applied, as fp32; `dtype` is the stored type."""

    weight: MappedTensor
    scale: MappedTensor

    @property
    def name(self) -> str:
        """The weight's name."""
        return self.weight.name

    @property
    def dtype(self) -> str:
        """F8_E4M3."""
        return self.weight.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns)."""
        return self.weight.shape

    def read_rows(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Rows [start, stop) as the bytes of float32 values, [rows, 4 · columns].

        Raises ValueError for rows that are not there.
        """
        rows, columns = self.shape
        if not 0 <= start <= stop <= rows:
            raise ValueError(f"rows {start} to {stop} of {self.name!r}, which has {rows}")
        codes = self.weight.file.view(self.weight.offset + start * columns, (stop - start) * columns)
        values = e4m3_values()[codes.reshape(-1, columns)]
        first, last = start // BLOCK, -(-stop // BLOCK)
        scales = self.scale.read_rows(first, last).view("<f4")
        by_row = scales[np.arange(start, stop) // BLOCK - first]
        values *= np.repeat(by_row, BLOCK, axis=1)[:, :columns]
        return values.view(np.uint8)


@lru_cache(maxsize=1)
def e4m3_values() -> npt.NDArray[np.float32]:
    """The value of each of the 256 codes; 0x7f and 0xff are not numbers."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    magnitude = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), normal)
    magnitude[(codes & 127) == 127] = np.nan
    values: npt.NDArray[np.float32] = np.where(codes < 128, magnitude, -magnitude).astype(np.float32)
    values.setflags(write=False)
    return values


def with_scales(tensors: Mapping[str, MappedTensor]) -> dict[str, LazyTensor]:
    """The same tensors, each of `DTYPE` joined with its scales, which are then no tensors of their own.

    Raises MissingTensorError for a weight without scales, CheckpointFormatError for scales of another type
    or shape than the weight's blocks.
    """
    joined: dict[str, LazyTensor] = dict(tensors)
    for name, weight in tensors.items():
        if weight.dtype != DTYPE:
            continue
        scale = tensors.get(name + SCALE_SUFFIX)
        if scale is None:
            raise MissingTensorError(
                f"{weight.file.path} holds tensor {name!r} as {DTYPE}, and {name + SCALE_SUFFIX!r} with its "
                f"scales is missing; download the checkpoint again, or use its floats or a GGUF"
            )
        blocks = tuple(-(-size // BLOCK) for size in weight.shape)
        if len(blocks) != 2 or scale.dtype != "F32" or scale.shape != blocks:
            raise CheckpointFormatError(
                f"{scale.file.path}: tensor {scale.name!r} is {scale.dtype} {list(scale.shape)}, and "
                f"{name!r} {list(weight.shape)} asks for F32 {list(blocks)}; download it again"
            )
        joined[name] = BlockScaledTensor(weight, scale)
        del joined[scale.name]
    return joined
