"""Random rows of GGUF blocks and what the `gguf` package says they are worth."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import dequantize

from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS

#: Byte offsets of the halves in a block.
_HALVES = {"Q6_K": (208,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q4_1": (0, 2), "Q5_1": (0, 2)}


def random_rows(dtype: str, rows: int, columns: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Random bit patterns, [rows, bytes per row]; scales are made finite by clearing an exponent bit."""
    block = GGUF_BLOCKS[dtype]
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (rows, columns // block.columns, block.bytes), dtype=np.uint8)
    for offset in _HALVES.get(dtype, (0,)):
        raw[:, :, offset + 1] &= 0xBF
    return raw.reshape(rows, -1)


def reference_values(dtype: str, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """[rows, columns] by the `gguf` package's own dequantizer."""
    values: npt.NDArray[np.float32] = dequantize(np.ascontiguousarray(raw), gguf.GGMLQuantizationType[dtype])
    return values
