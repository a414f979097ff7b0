"""Codes and scales put together as GGUF's quantized blocks: the inverse of `gguf_blocks.split`.

Owns no layout of its own; `gguf_blocks` says where each lies. Knows nothing of GGUF files.
"""

from __future__ import annotations

import numpy as np

from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS
from edgeseek.quantize.packing import Blocks, Bytes, Plane, Words

_LOW = np.uint32(0x0F0F0F0F)
_BIT = np.uint32(0x01010101)
_PAIR = np.uint32(0x03030303)


def join(dtype: str, blocks: Blocks) -> Bytes:
    """The stored bytes [rows, bytes per row] of GGUF type `dtype`, whose scheme `blocks` must have.

    Raises ValueError for another scheme, KeyError for a type that is not in `GGUF_BLOCKS`.
    """
    block = GGUF_BLOCKS[dtype]
    if blocks.scheme != block.scheme:
        raise ValueError(f"{dtype} blocks hold scheme {block.scheme}, not {blocks.scheme}")
    out: Bytes = np.empty((blocks.rows, blocks.blocks, block.bytes), np.uint8)
    if blocks.scheme == "q8":
        _put(out, 0, blocks.scales["d"])
        _put(out, 2, blocks.codes)
    elif blocks.scheme in ("q4", "q4z", "q5", "q5z"):
        _join_plain(blocks, out)
    elif blocks.scheme == "q6k":
        _join_q6k(blocks, out)
    else:
        _join_q4k_q5k(blocks, out)
    return out.reshape(blocks.rows, -1)


def _put(out: Bytes, offset: int, plane: Plane) -> None:
    """Items [count, blocks, rows] into every block of [rows, blocks, bytes], from byte `offset` on."""
    items = np.ascontiguousarray(plane.transpose(2, 1, 0)).view(np.uint8)
    out[:, :, offset : offset + items.shape[2]] = items


def _join_plain(blocks: Blocks, out: Bytes) -> None:
    _put(out, 0, blocks.scales["d"])
    offset = 2
    if "m" in blocks.scales:
        _put(out, 2, blocks.scales["m"])
        offset = 4
    codes = blocks.codes
    if blocks.scheme in ("q5", "q5z"):
        high = np.zeros(codes.shape[1:], np.uint32)
        for chunk in range(8):
            high |= _fifth_bits(codes[chunk]) << np.uint32(4 * chunk)
        _put(out, offset, high[None])
        offset += 4
    _put(out, offset, codes[:4] & _LOW | (codes[4:] & _LOW) << np.uint32(4))


def _fifth_bits(word: Words) -> Words:
    """Bit 4 of each byte of a chunk, as the low four bits."""
    bits = word >> np.uint32(4) & _BIT
    result: Words = (bits | bits >> np.uint32(7) | bits >> np.uint32(14) | bits >> np.uint32(21)) & np.uint32(
        15
    )
    return result


def _join_q4k_q5k(blocks: Blocks, out: Bytes) -> None:
    scales = blocks.scales
    _put(out, 0, scales["d"])
    _put(out, 2, scales["dmin"])
    _put(out, 4, _twelve_bytes(scales["sc"], scales["mn"]))
    codes = blocks.codes.reshape(4, 2, 8, *blocks.codes.shape[1:])
    offset = 16
    if blocks.scheme == "q5k":
        fifth = blocks.codes.reshape(8, 8, *blocks.codes.shape[1:]) >> np.uint32(4) & _BIT
        high = np.zeros(fifth.shape[1:], np.uint32)
        for group in range(8):
            high |= fifth[group] << np.uint32(group)
        _put(out, 16, high)
        offset = 48
    nibbles = codes[:, 0] & _LOW | (codes[:, 1] & _LOW) << np.uint32(4)
    _put(out, offset, nibbles.reshape(32, *nibbles.shape[2:]))


def _twelve_bytes(scales: Bytes, mins: Bytes) -> Bytes:
    """Eight 6-bit scales and mins [8, blocks, rows] in 12 bytes, see `gguf_blocks`."""
    first = scales[:4] | (scales[4:] >> 4) << 6
    second = mins[:4] | (mins[4:] >> 4) << 6
    return np.concatenate([first, second, scales[4:] & 15 | (mins[4:] & 15) << 4])


def _join_q6k(blocks: Blocks, out: Bytes) -> None:
    codes = blocks.codes.reshape(2, 4, 8, *blocks.codes.shape[1:])
    nibbles = np.empty((2, 2, *codes.shape[2:]), np.uint32)
    for part in range(2):
        nibbles[:, part] = codes[:, part] & _LOW | (codes[:, part + 2] & _LOW) << np.uint32(4)
    pairs = np.zeros((2, *codes.shape[2:]), np.uint32)
    for group in range(4):
        pairs |= (codes[:, group] >> np.uint32(4) & _PAIR) << np.uint32(2 * group)
    _put(out, 0, nibbles.reshape(32, *codes.shape[3:]))
    _put(out, 128, pairs.reshape(16, *codes.shape[3:]))
    _put(out, 192, blocks.scales["sc"])
    _put(out, 208, blocks.scales["d"])
