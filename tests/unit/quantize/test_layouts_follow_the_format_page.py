"""Each value is looked up byte by byte as package/FORMAT.md says, with plain integers."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS, split
from edgeseek.quantize.packing import pack
from edgeseek.quantize.rtn import from_floats
from edgeseek.quantize.schemes import SCHEMES, Scheme, stored_bytes
from tests.unit.quantize.gguf_rows import random_rows, reference_values


def half(data: bytes, offset: int) -> np.float32:
    return np.float32(struct.unpack_from("<e", data, offset)[0])


class BlockReader:
    """One block of I channels, read the slow way."""

    def __init__(self, data: bytes, channels: int) -> None:
        self.data = data
        self.channels = channels

    def scale(self, start: int, channel: int) -> np.float32:
        return half(self.data, start + 2 * channel)

    def nibble(self, start: int, chunk: int, lane: int, channel: int) -> int:
        run, high = divmod(chunk, 2)
        byte = self.data[start + run * 4 * self.channels + 4 * channel + lane]
        return byte >> 4 if high else byte & 15

    def high_bit(self, start: int, chunk: int, lane: int, channel: int) -> int:
        return self.data[start + 4 * channel + lane] >> chunk & 1

    def high_pair(self, start: int, chunk: int, lane: int, channel: int) -> int:
        run, place = divmod(chunk, 4)
        return self.data[start + run * 4 * self.channels + 4 * channel + lane] >> 2 * place & 3

    def six_bits(self, start: int, group: int, channel: int) -> int:
        low = self.data[start + group // 2 * self.channels + channel] >> 4 * (group & 1) & 15
        high = self.data[start + (4 + group // 4) * self.channels + channel] >> 2 * (group & 3) & 3
        return low | high << 4


def value_at(scheme: str, reader: BlockReader, column: int, channel: int) -> np.float32:
    """The value column of FORMAT.md for one column of a block."""
    i = reader.channels
    group, inside = divmod(column, 32)
    chunk, lane = divmod(inside, 4)
    d = reader.scale(0, channel)
    if scheme == "q8":
        code = struct.unpack_from("b", reader.data, 2 * i + chunk * 4 * i + 4 * channel + lane)[0]
        return d * np.float32(code)
    if scheme in ("q4", "q4z", "q5", "q5z"):
        start = 4 * i if scheme.endswith("z") else 2 * i
        code = reader.nibble(start, chunk, lane, channel)
        if "5" in scheme:
            code |= reader.high_bit(start + 16 * i, chunk, lane, channel) << 4
        if scheme.endswith("z"):
            return d * np.float32(code) + reader.scale(2 * i, channel)
        return d * np.float32(code - (16 if scheme == "q5" else 8))
    if scheme == "q6k":
        scales = 2 * i
        start = scales + 16 * i + group * 24 * i
        code = reader.nibble(start, chunk, lane, channel)
        code |= reader.high_pair(start + 16 * i, chunk, lane, channel) << 4
        sub = struct.unpack_from("b", reader.data, scales + (2 * group + chunk // 4) * i + channel)[0]
        return d * np.float32(sub) * np.float32(code - 32)
    start = 16 * i + group * (20 if scheme == "q5k" else 16) * i
    code = reader.nibble(start, chunk, lane, channel)
    if scheme == "q5k":
        code |= reader.high_bit(start + 16 * i, chunk, lane, channel) << 4
    sc, mn = reader.six_bits(4 * i, group, channel), reader.six_bits(10 * i, group, channel)
    low = reader.scale(2 * i, channel) * np.float32(mn)
    return d * np.float32(sc) * np.float32(code) - low


@pytest.mark.parametrize(("layout", "channels"), [("tiles", 16), ("rows", 1)])
@pytest.mark.parametrize("dtype", GGUF_BLOCKS)
def test_every_value_lies_where_the_page_says(dtype, layout, channels):
    scheme = GGUF_BLOCKS[dtype].scheme
    block = SCHEMES[scheme].block
    rows, columns = 19, 2 * block
    raw = random_rows(dtype, rows, columns, seed=7)
    data = pack(split(dtype, raw), layout).tobytes()
    size = SCHEMES[scheme].block_bytes * channels
    expected = reference_values(dtype, raw)
    for row in (0, 1, 15, 16, 18):
        for column in range(columns):
            tile, channel = divmod(row, channels)
            start = (tile * 2 + column // block) * size
            reader = BlockReader(data[start : start + size], channels)
            assert value_at(scheme, reader, column % block, channel) == expected[row, column], (row, column)


def test_float_tiles_hold_sixteen_channels_of_a_column_side_by_side():
    rows = np.arange(17 * 3, dtype=np.float32).reshape(17, 3)
    kinds: tuple[tuple[Scheme, str], ...] = (("f16", "<f2"), ("f32", "<f4"))
    for scheme, kind in kinds:
        stored = pack(from_floats(rows, scheme), "tiles").reshape(-1).view(kind)
        assert stored.size == 2 * 3 * 16
        np.testing.assert_array_equal(stored[:16], rows[:16, 0])
        np.testing.assert_array_equal(stored[16:32], rows[:16, 1])
        np.testing.assert_array_equal(stored[48:64], [rows[16, 0]] + [0] * 15)
        flat = pack(from_floats(rows, scheme), "rows").reshape(-1).view(kind)
        np.testing.assert_array_equal(flat, rows.reshape(-1))


@pytest.mark.parametrize(
    ("scheme", "tiles", "rows"),
    [
        ("f32", 4 * 48 * 288, 4 * 40 * 288),
        ("f16", 2 * 48 * 288, 2 * 40 * 288),
        ("q8", 3 * 9 * 16 * 34, 40 * 9 * 34),
        ("q4", 3 * 9 * 16 * 18, 40 * 9 * 18),
        ("q4z", 3 * 9 * 16 * 20, 40 * 9 * 20),
        ("q5", 3 * 9 * 16 * 22, 40 * 9 * 22),
        ("q5z", 3 * 9 * 16 * 24, 40 * 9 * 24),
        ("q4k", 3 * 2 * 16 * 144, 40 * 2 * 144),
        ("q5k", 3 * 2 * 16 * 176, 40 * 2 * 176),
        ("q6k", 3 * 2 * 16 * 210, 40 * 2 * 210),
    ],
)
def test_sizes_are_those_of_the_table(scheme, tiles, rows):
    assert stored_bytes(scheme, "rows", (40, 288)) == rows
    assert stored_bytes(scheme, "tiles", (40, 288)) == tiles


@pytest.mark.parametrize(
    ("scheme", "layout", "shape"),
    [
        ("q9", "tiles", (16, 32)),
        ("q8", "columns", (16, 32)),
        ("q8", "flat", (16,)),
        ("f32", "flat", (16, 32)),
        ("f32", "tiles", (16,)),
        ("f32", "rows", (0, 32)),
    ],
)
def test_combinations_that_the_format_lacks_are_refused(scheme, layout, shape):
    with pytest.raises(ValueError, match="."):
        stored_bytes(scheme, layout, shape)
