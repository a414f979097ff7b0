"""The values that a block's codes can stand for, column by column: what error feedback rounds to.

Every scheme with codes is affine within a group: value = step · code + base. Arrays are [columns, rows],
rows innermost. Knows nothing of how scales are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from edgeseek.quantize.packing import Blocks, Bytes, Floats, Plane, chunk_bytes, chunk_words
from edgeseek.quantize.schemes import SCHEMES


@dataclass(frozen=True)
class Grid:
    """Affine grids of some columns; `step` and `base` are [groups, rows], each for `width` columns."""

    step: Floats
    base: Floats
    width: int
    low: int
    high: int

    def codes(self, column: int, values: Floats) -> Floats:
        """The nearest codes for one column's `values` [rows], as floats."""
        group = column // self.width
        codes: Floats = (values - self.base[group]) * self._inverse[group]
        np.rint(codes, out=codes)
        np.clip(codes, self.low, self.high, out=codes)
        return codes

    def values(self, column: int, codes: Floats) -> Floats:
        """What codes of one column stand for."""
        group = column // self.width
        result: Floats = codes * self.step[group] + self.base[group]
        return result

    @cached_property
    def _inverse(self) -> Floats:
        return np.divide(1, self.step, out=np.zeros_like(self.step), where=self.step != 0)


def grid_of(blocks: Blocks) -> Grid:
    """The grids on which the values of `blocks` lie, whatever its codes."""
    scales, bits = blocks.scales, SCHEMES[blocks.scheme].code_bits
    d = _half(scales["d"])
    if blocks.scheme == "q8":
        return Grid(d, np.zeros_like(d), 32, -127, 127)
    if blocks.scheme in ("q4", "q5"):
        return Grid(d, d * np.float32(-(1 << bits - 1)), 32, 0, (1 << bits) - 1)
    if blocks.scheme in ("q4z", "q5z"):
        return Grid(d, _half(scales["m"]), 32, 0, (1 << bits) - 1)
    if blocks.scheme == "q6k":
        step = _groups(scales["d"].view("<f2").astype(np.float32) * scales["sc"].view(np.int8))
        return Grid(step, step * np.float32(-32), 16, 0, 63)
    step = _groups(scales["d"].view("<f2").astype(np.float32) * scales["sc"])
    base = _groups(scales["dmin"].view("<f2").astype(np.float32) * scales["mn"])
    return Grid(step, -base, 32, 0, (1 << bits) - 1)


def with_codes(blocks: Blocks, codes: Floats) -> Blocks:
    """`blocks` with other codes, [columns, rows]; columns that pad the last block keep theirs."""
    flat = chunk_bytes(blocks.codes).reshape(blocks.rows, -1)
    flat[:, : len(codes)] = codes.T.astype(np.int16).astype(np.uint8)
    return replace(blocks, codes=chunk_words(flat, SCHEMES[blocks.scheme].block))


def codes_of(blocks: Blocks) -> Floats:
    """The codes as numbers, [columns, rows], those of padding columns included."""
    flat: Bytes = chunk_bytes(blocks.codes).reshape(blocks.rows, -1)
    numbers = flat.view(np.int8) if blocks.scheme == "q8" else flat
    return np.ascontiguousarray(numbers.T, np.float32)


def joined(parts: list[Blocks]) -> Blocks:
    """Blocks of consecutive columns of the same rows as one."""
    first = parts[0]
    scales: Mapping[str, Plane] = {
        name: np.concatenate([part.scales[name] for part in parts], axis=1) for name in first.scales
    }
    return Blocks(first.scheme, scales, np.concatenate([part.codes for part in parts], axis=1))


def _half(plane: Plane) -> Floats:
    """[1, blocks, rows] of half bits as [blocks, rows]."""
    result: Floats = plane[0].view("<f2").astype(np.float32)
    return result


def _groups(plane: Floats) -> Floats:
    """[n, blocks, rows] as [blocks · n, rows], groups in the order of their columns."""
    return np.ascontiguousarray(plane.astype(np.float32).transpose(1, 0, 2).reshape(-1, plane.shape[2]))
