"""Codes and scales into the byte layouts of package format 1, and back to floats.

`Blocks` is the form in between: scales and codes of some rows, one array per part, rows innermost, so
that every pass over it runs along contiguous memory. `pack` interleaves it into tiles or rows; `unpack`
is the reference dequantizer of FORMAT.md, exact to the bit. Knows nothing of files or models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeseek.quantize.schemes import SCHEMES, Scheme, SchemeSpec, block_grid, interleave, stored_bytes

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
#: Unsigned integers of 1, 2 or 4 bytes.
Plane = npt.NDArray[Any]

_LOW = np.uint32(0x0F0F0F0F)
_BIT = np.uint32(0x01010101)
_PAIR = np.uint32(0x03030303)
_DTYPES: Mapping[int, np.dtype[Any]] = MappingProxyType(
    {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
)


@dataclass(frozen=True)
class Blocks:
    """Quantized rows, taken apart.

    `scales` maps a name to [n, blocks, rows]: "d", "m", "dmin" (n = 1, the bits of a half), "sc", "mn"
    (n = 8, 6-bit numbers in bytes), "sc" of q6k (n = 16, int8 bits) or "value" of the float schemes
    (n = 1, float bits). `codes` is [8 * groups, blocks, rows]: each 4-byte word is a chunk, the codes of
    four neighbouring columns, one per byte, lowest column first (int8 bits for q8, else unsigned).
    """

    scheme: Scheme
    scales: Mapping[str, Plane]
    codes: Words

    @property
    def rows(self) -> int:
        """Rows of the matrix, those that pad a tile included where they were unpacked."""
        return int(next(iter(self.scales.values())).shape[2])

    @property
    def blocks(self) -> int:
        """Blocks along K."""
        return int(next(iter(self.scales.values())).shape[1])


def pack(blocks: Blocks, layout: str) -> Bytes:
    """The stored bytes of these rows: [tiles, blocks, I * block bytes], C-contiguous.

    Rows are padded with zeros to a multiple of I, so only the last rows of a tensor may be no multiple.
    """
    spec = SCHEMES[blocks.scheme]
    width = interleave(layout)
    tiles = -(-blocks.rows // width)
    out: Bytes = np.zeros((tiles, blocks.blocks, width * spec.block_bytes), np.uint8)
    parts = _stored_fields(blocks.scales)
    offset = 0
    for field in spec.fields:
        plane = _plane(out, offset, field.runs, field.width, width)
        _fill(plane, parts[field.name])
        offset += field.runs * field.width * width
    if spec.code_bits:
        stored = _stored_codes(spec, blocks.codes)
        _fill(_plane(out, offset, len(stored), 4, width), stored)
    return out


def unpack(data: Bytes, scheme: str, layout: str, shape: Sequence[int]) -> Floats:
    """The values of a stored tensor, float32 of the logical `shape`.

    `data` holds at least `stored_bytes(scheme, layout, shape)` bytes; fewer raise ValueError, as does a
    combination of scheme, layout and shape that the format does not have.
    """
    if layout == "flat":
        flat = _stored(data, scheme, layout, shape)
        return flat.view("<f4" if scheme == "f32" else "<f2").astype(np.float32)
    return values(unpack_blocks(data, scheme, layout, shape))[: shape[0], : shape[1]]


def unpack_blocks(data: Bytes, scheme: str, layout: str, shape: Sequence[int]) -> Blocks:
    """Codes and scales of a stored matrix, the rows that pad its last tile included; see `unpack`."""
    tiles, count = block_grid(scheme, layout, shape)
    stored = _stored(data, scheme, layout, shape).reshape(tiles, count, -1)
    return _take_apart(stored, SCHEMES[scheme], interleave(layout))


def first_rows(blocks: Blocks, count: int) -> Blocks:
    """The first `count` rows."""
    if count == blocks.rows:
        return blocks
    scales = {name: plane[:, :, :count] for name, plane in blocks.scales.items()}
    return Blocks(blocks.scheme, scales, blocks.codes[:, :, :count])


def values(blocks: Blocks) -> Floats:
    """What the blocks stand for, as [rows, blocks * block] float32: the value column of FORMAT.md."""
    spec = SCHEMES[blocks.scheme]
    scales = blocks.scales
    if not spec.code_bits:
        bits = np.ascontiguousarray(scales["value"][0].T)
        return bits.view("<f4" if blocks.scheme == "f32" else "<f2").astype(np.float32)
    codes = chunk_bytes(blocks.codes)
    d = _halves(scales["d"])
    if blocks.scheme == "q8":
        result = d * codes.view(np.int8).astype(np.float32)
    elif blocks.scheme in ("q4", "q5"):
        offset = np.float32(1 << (spec.code_bits - 1))
        result = d * (codes.astype(np.float32) - offset)
    elif blocks.scheme in ("q4z", "q5z"):
        result = d * codes.astype(np.float32) + _halves(scales["m"])
    elif blocks.scheme == "q6k":
        scale = d * _columns(scales["sc"].view(np.int8))
        result = (codes.astype(np.float32) - np.float32(32)).reshape(*scale.shape[:2], 16, 16)
        result *= scale[..., None]
    else:
        scale = (d * _columns(scales["sc"]))[..., None]
        low = (_halves(scales["dmin"]) * _columns(scales["mn"]))[..., None]
        result = codes.reshape(*scale.shape[:2], 8, 32).astype(np.float32)
        result *= scale
        result -= low
    return result.reshape(blocks.rows, -1)


def chunk_words(codes: Bytes, block: int) -> Words:
    """Codes [rows, columns], one per byte, as chunks [block / 4, columns / block, rows]."""
    rows, columns = codes.shape
    words = codes.view("<u4").reshape(rows, columns // block, block // 4)
    return np.ascontiguousarray(words.transpose(2, 1, 0))


def chunk_bytes(words: Words) -> Bytes:
    """Inverse of `chunk_words`, as [rows, blocks, block]."""
    return np.ascontiguousarray(words.transpose(2, 1, 0)).view(np.uint8)


def _stored(data: Bytes, scheme: str, layout: str, shape: Sequence[int]) -> Bytes:
    needed = stored_bytes(scheme, layout, shape)
    if data.size < needed:
        raise ValueError(f"{scheme} {layout} {tuple(shape)} takes {needed} bytes, {data.size} were given")
    flat: Bytes = np.ascontiguousarray(data.reshape(-1)[:needed])
    return flat


def _stored_fields(scales: Mapping[str, Plane]) -> Mapping[str, Plane]:
    """The scales as stored: the 6-bit ones of q4k and q5k are split into nibbles and bit pairs."""
    if "mn" not in scales:
        return scales
    parts = {"d": scales["d"], "dmin": scales["dmin"]}
    for name in ("sc", "mn"):
        six = scales[name]
        low, high = six & 15, six >> 4
        parts[f"{name}_lo"] = low[0::2] | low[1::2] << 4
        parts[f"{name}_hi"] = high[0::4] | high[1::4] << 2 | high[2::4] << 4 | high[3::4] << 6
    return parts


def _stored_codes(spec: SchemeSpec, codes: Words) -> Words:
    """The code words of a block as stored: [groups * group_words, blocks, rows]."""
    if spec.code_bits == 8:
        return codes
    blocks, rows = codes.shape[1:]
    chunks = codes.reshape(spec.groups, 8, blocks, rows)
    stored = np.empty((spec.groups, spec.group_words, blocks, rows), np.uint32)
    for run in range(4):
        target = stored[:, run]
        np.bitwise_and(chunks[:, 2 * run + 1], _LOW, out=target)
        np.left_shift(target, np.uint32(4), out=target)
        np.bitwise_or(target, chunks[:, 2 * run] & _LOW, out=target)
    if spec.code_bits == 5:
        _gather_bits(chunks, _BIT, 1, stored[:, 4:])
    elif spec.code_bits == 6:
        _gather_bits(chunks, _PAIR, 2, stored[:, 4:])
    return stored.reshape(-1, blocks, rows)


def _gather_bits(chunks: Words, mask: np.uint32, bits: int, out: Words) -> None:
    """Collect bits 4.. of each code: a byte of run r holds those of chunks r * 8 / bits onwards."""
    per_byte = 8 // bits
    for chunk in range(8):
        part = chunks[:, chunk] >> np.uint32(4)
        np.bitwise_and(part, mask, out=part)
        run, place = divmod(chunk, per_byte)
        if place == 0:
            out[:, run] = part
        else:
            np.left_shift(part, np.uint32(bits * place), out=part)
            np.bitwise_or(out[:, run], part, out=out[:, run])


def _take_apart(stored: Bytes, spec: SchemeSpec, width: int) -> Blocks:
    """Inverse of `pack`, for [tiles, blocks, I * block bytes]; rows include the padding."""
    parts: dict[str, Plane] = {}
    offset = 0
    for field in spec.fields:
        plane = _plane(stored, offset, field.runs, field.width, width)
        parts[field.name] = _rows_last(plane)
        offset += field.runs * field.width * width
    if "mn_lo" in parts:
        for name in ("sc", "mn"):
            low, high = parts.pop(f"{name}_lo"), parts.pop(f"{name}_hi")
            six = np.empty((8, *low.shape[1:]), np.uint8)
            for g in range(8):
                six[g] = (low[g // 2] >> 4 * (g & 1)) & 15 | ((high[g // 4] >> 2 * (g & 3)) & 3) << 4
            parts[name] = six
    if not spec.code_bits:
        return Blocks(spec.name, parts, np.empty((0, 0, 0), np.uint32))
    words: Words = _rows_last(_plane(stored, offset, spec.groups * spec.group_words, 4, width))
    return Blocks(spec.name, parts, _read_codes(spec, words))


def _read_codes(spec: SchemeSpec, words: Words) -> Words:
    """Inverse of `_stored_codes`."""
    if spec.code_bits == 8:
        return words
    blocks, rows = words.shape[1:]
    stored = words.reshape(spec.groups, spec.group_words, blocks, rows)
    chunks = np.empty((spec.groups, 8, blocks, rows), np.uint32)
    bits = spec.code_bits - 4
    for chunk in range(8):
        code = (stored[:, chunk // 2] >> np.uint32(4 * (chunk & 1))) & _LOW
        if bits:
            run, place = divmod(chunk, 8 // bits)
            high = stored[:, 4 + run] >> np.uint32(bits * place)
            code |= (high & (_BIT if bits == 1 else _PAIR)) << np.uint32(4)
        chunks[:, chunk] = code
    return chunks.reshape(-1, blocks, rows)


def _plane(stored: Bytes, offset: int, runs: int, width: int, channels: int) -> Plane:
    """One field of [tiles, blocks, bytes] as a view [runs, blocks, tiles, I] of `width`-byte items."""
    tiles, blocks, _ = stored.shape
    part: Plane = stored[:, :, offset : offset + runs * channels * width].view(_DTYPES[width])
    return part.reshape(tiles, blocks, runs, channels).transpose(2, 1, 0, 3)


def _fill(plane: Plane, source: Plane) -> None:
    """Copy [runs, blocks, rows] into a plane; rows beyond the source stay zero."""
    runs, blocks, rows = source.shape
    channels = plane.shape[3]
    whole = rows // channels
    plane[:, :, :whole] = source[:, :, : whole * channels].reshape(runs, blocks, whole, channels)
    if rest := rows - whole * channels:
        plane[:, :, whole, :rest] = source[:, :, whole * channels :]


def _rows_last(plane: Plane) -> Plane:
    runs, blocks, tiles, channels = plane.shape
    return np.ascontiguousarray(plane).reshape(runs, blocks, tiles * channels)


def _columns(plane: Plane) -> Floats:
    """[n, blocks, rows] of small integers as [rows, blocks, n] float32."""
    return plane.transpose(2, 1, 0).astype(np.float32)


def _halves(plane: Plane) -> Floats:
    """[1, blocks, rows] of half bits as [rows, blocks, 1] float32."""
    return _columns(plane.view("<f2"))
