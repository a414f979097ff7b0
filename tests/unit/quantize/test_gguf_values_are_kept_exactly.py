from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS, split
from edgeseek.quantize.packing import pack, unpack, values
from edgeseek.quantize.schemes import stored_bytes
from tests.unit.quantize.gguf_rows import random_rows, reference_values

CASES = [
    (dtype, rows, columns)
    for dtype, block in GGUF_BLOCKS.items()
    for rows in (1, 16, 17, 40)
    for columns in ((32, 96, 288) if block.columns == 32 else (256, 768))
]


@pytest.mark.parametrize("layout", ["tiles", "rows"])
@pytest.mark.parametrize(("dtype", "rows", "columns"), CASES)
def test_packed_values_equal_those_of_the_gguf_package(dtype, rows, columns, layout):
    raw = random_rows(dtype, rows, columns, seed=rows * columns)
    scheme = GGUF_BLOCKS[dtype].scheme
    packed = pack(split(dtype, raw), layout)
    assert packed.size == stored_bytes(scheme, layout, (rows, columns))
    unpacked = unpack(packed, scheme, layout, (rows, columns))
    assert unpacked.dtype == np.float32
    np.testing.assert_array_equal(unpacked, reference_values(dtype, raw))


@pytest.mark.parametrize("dtype", GGUF_BLOCKS)
def test_negative_zero_and_subnormal_scales_keep_their_bits(dtype):
    raw = random_rows(dtype, 4, 256)
    offset = 208 if dtype == "Q6_K" else 0
    size = GGUF_BLOCKS[dtype].bytes
    raw.reshape(4, -1, size)[:, :, offset : offset + 2] = np.array([[0x00, 0x80], [1, 0], [0, 4], [0, 0]])[
        :, None, :
    ]
    got = unpack(pack(split(dtype, raw), "tiles"), GGUF_BLOCKS[dtype].scheme, "tiles", (4, 256))
    np.testing.assert_array_equal(got, reference_values(dtype, raw))


@pytest.mark.parametrize("dtype", GGUF_BLOCKS)
def test_rows_beyond_the_last_are_zero_codes_and_zero_scales(dtype):
    raw = random_rows(dtype, 5, 256)
    padded = np.concatenate([raw, np.zeros((11, raw.shape[1]), np.uint8)])
    np.testing.assert_array_equal(pack(split(dtype, raw), "tiles"), pack(split(dtype, padded), "tiles"))


@settings(deadline=None, max_examples=40)
@given(
    dtype=st.sampled_from(sorted(GGUF_BLOCKS)),
    layout=st.sampled_from(["tiles", "rows"]),
    rows=st.integers(1, 40),
    blocks=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_unpacking_inverts_packing(dtype, layout, rows, blocks, seed):
    columns = blocks * GGUF_BLOCKS[dtype].columns
    parts = split(dtype, random_rows(dtype, rows, columns, seed))
    packed = pack(parts, layout)
    unpacked = unpack(packed, parts.scheme, layout, (rows, columns))
    np.testing.assert_array_equal(unpacked, values(parts))


def test_a_row_that_is_no_whole_number_of_blocks_is_refused():
    with pytest.raises(ValueError, match="35 bytes per row are no multiple of a Q8_0 block's 34"):
        split("Q8_0", np.zeros((2, 35), np.uint8))


def test_too_few_bytes_are_refused():
    with pytest.raises(ValueError, match="takes 544 bytes, 543 were given"):
        unpack(np.zeros(543, np.uint8), "q8", "tiles", (16, 32))
