"""GGUF's quantized blocks, taken apart into codes and scales without touching a value.

Owns the bit layouts of the GGUF types as published in the ggml project's `ggml-common.h` (structs
`block_q4_0` … `block_q6_K`). Knows nothing of GGUF files: rows of block bytes in, `Blocks` out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from edgeseek.quantize.packing import Blocks, Bytes, Plane, Words
from edgeseek.quantize.schemes import Scheme

_LOW = np.uint32(0x0F0F0F0F)
_BIT = np.uint32(0x01010101)
_PAIR = np.uint32(0x03030303)


@dataclass(frozen=True)
class GgufBlock:
    """A GGUF type: columns and bytes of a block, and the scheme that holds its values exactly."""

    columns: int
    bytes: int
    scheme: Scheme


GGUF_BLOCKS: Mapping[str, GgufBlock] = MappingProxyType(
    {
        "Q4_0": GgufBlock(32, 18, "q4"),
        "Q4_1": GgufBlock(32, 20, "q4z"),
        "Q5_0": GgufBlock(32, 22, "q5"),
        "Q5_1": GgufBlock(32, 24, "q5z"),
        "Q8_0": GgufBlock(32, 34, "q8"),
        "Q4_K": GgufBlock(256, 144, "q4k"),
        "Q5_K": GgufBlock(256, 176, "q5k"),
        "Q6_K": GgufBlock(256, 210, "q6k"),
    }
)


def split(dtype: str, raw: Bytes) -> Blocks:
    """Scales and codes of `raw` = [rows, bytes per row], stored as GGUF type `dtype`.

    Raises ValueError where the bytes per row are no multiple of the type's block, KeyError for a type
    that is not in `GGUF_BLOCKS`.
    """
    block = GGUF_BLOCKS[dtype]
    rows, row_bytes = raw.shape
    if row_bytes % block.bytes:
        raise ValueError(f"{row_bytes} bytes per row are no multiple of a {dtype} block's {block.bytes}")
    parts = np.ascontiguousarray(raw).reshape(rows, row_bytes // block.bytes, block.bytes)
    scheme = block.scheme
    if scheme == "q8":
        return Blocks(scheme, {"d": _planes(parts, 0, 1, "<u2")}, _planes(parts, 2, 8, "<u4"))
    if scheme in ("q4", "q4z", "q5", "q5z"):
        return _split_plain(scheme, parts)
    if scheme == "q6k":
        return _split_q6k(parts)
    return _split_q4k_q5k(scheme, parts)


def _planes(parts: Bytes, offset: int, count: int, dtype: str) -> Plane:
    """`count` items at byte `offset` of every block of [rows, blocks, bytes], as [count, blocks, rows]."""
    width = np.dtype(dtype).itemsize
    items = parts[:, :, offset : offset + count * width].view(dtype)
    return np.ascontiguousarray(items.transpose(2, 1, 0))


def _split_plain(scheme: Scheme, parts: Bytes) -> Blocks:
    """Q4_0, Q4_1, Q5_0, Q5_1: byte j holds column j in its low and column j + 16 in its high nibble."""
    scales = {"d": _planes(parts, 0, 1, "<u2")}
    offset = 2
    if scheme in ("q4z", "q5z"):
        scales["m"] = _planes(parts, 2, 1, "<u2")
        offset = 4
    high: Plane | None = None
    if scheme in ("q5", "q5z"):
        high = _planes(parts, offset, 4, "u1")
        offset += 4
    nibbles = _planes(parts, offset, 4, "<u4")
    codes = np.empty((8, *nibbles.shape[1:]), np.uint32)
    np.bitwise_and(nibbles, _LOW, out=codes[:4])
    np.bitwise_and(nibbles >> np.uint32(4), _LOW, out=codes[4:])
    if high is not None:
        for chunk in range(8):
            codes[chunk] |= _spread_nibble(high[chunk // 2] >> 4 * (chunk & 1))
    return Blocks(scheme, scales, codes)


def _spread_nibble(bits: Plane) -> Words:
    """Bit i of the low nibble becomes bit 4 of byte i: the fifth bits of a chunk's four codes."""
    word: Words = (bits & 15).astype(np.uint32)
    # The multiplication copies the nibble to bits 0, 7, 14 and 21, which puts bit i at bit 8 i.
    word *= np.uint32(0x00204081)
    word &= _BIT
    word <<= np.uint32(4)
    return word


def _split_q4k_q5k(scheme: Scheme, parts: Bytes) -> Blocks:
    """Q4_K, Q5_K: each 32 bytes hold two groups of 32 columns, one per nibble."""
    scales = {"d": _planes(parts, 0, 1, "<u2"), "dmin": _planes(parts, 2, 1, "<u2")}
    scales["sc"], scales["mn"] = _six_bit_scales(_planes(parts, 4, 12, "u1"))
    offset = 48 if scheme == "q5k" else 16
    nibbles = _planes(parts, offset, 32, "<u4")
    nibbles = nibbles.reshape(4, 8, *nibbles.shape[1:])
    codes = np.empty((4, 2, *nibbles.shape[1:]), np.uint32)
    np.bitwise_and(nibbles, _LOW, out=codes[:, 0])
    np.bitwise_and(nibbles >> np.uint32(4), _LOW, out=codes[:, 1])
    codes = codes.reshape(8, *nibbles.shape[1:])
    if scheme == "q5k":
        high = _planes(parts, 16, 8, "<u4")
        for group in range(8):
            part = high >> np.uint32(group)
            part &= _BIT
            part <<= np.uint32(4)
            codes[group] |= part
    return Blocks(scheme, scales, codes.reshape(64, *codes.shape[2:]))


def _six_bit_scales(packed: Plane) -> tuple[Bytes, Bytes]:
    """Scales and mins [8, blocks, rows] from the 12 bytes that hold them.

    Bytes 0–3 and 4–7 hold numbers 0–3 in their low six bits, bytes 8–11 the low nibbles of numbers
    4–7, whose upper two bits sit on top of bytes 0–3 and 4–7.
    """
    first, second, low = packed[0:4], packed[4:8], packed[8:12]
    scales = np.concatenate([first & 63, low & 15 | (first >> 2) & 48])
    mins = np.concatenate([second & 63, low >> 4 | (second >> 2) & 48])
    return scales, mins


def _split_q6k(parts: Bytes) -> Blocks:
    """Q6_K: per half of 128 columns 64 bytes of low nibbles and 32 of bit pairs, in groups of 32."""
    scales = {"d": _planes(parts, 208, 1, "<u2"), "sc": _planes(parts, 192, 16, "u1")}
    nibbles = _planes(parts, 0, 32, "<u4")
    nibbles = nibbles.reshape(2, 2, 8, *nibbles.shape[1:])
    pairs = _planes(parts, 128, 16, "<u4")
    pairs = pairs.reshape(2, 8, *pairs.shape[1:])
    codes = np.empty((2, 4, *pairs.shape[1:]), np.uint32)
    for group in range(4):
        high = pairs >> np.uint32(2 * group)
        high &= _PAIR
        high <<= np.uint32(4)
        target = codes[:, group]
        np.right_shift(nibbles[:, group & 1], np.uint32(4 * (group >> 1)), out=target)
        np.bitwise_and(target, _LOW, out=target)
        np.bitwise_or(target, high, out=target)
    return Blocks("q6k", scales, codes.reshape(64, *codes.shape[3:]))
