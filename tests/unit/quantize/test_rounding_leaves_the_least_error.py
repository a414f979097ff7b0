"""Scales and codes are chosen so that the weighted squared error is least, for each GGUF type."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import quantize

from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS, split
from edgeseek.quantize.gguf_join import join
from edgeseek.quantize.least_error import round_to_least_error
from edgeseek.quantize.packing import pack, unpack, values
from edgeseek.quantize.rtn import RoundingError, from_floats
from tests.unit.quantize.gguf_rows import random_rows, reference_values

#: Σ (x' − x)² / Σ x² of llama.cpp 0.3.36's own quantizer on `gaussian(64, 512)`, by `ggml_quantize_chunk`.
LLAMA_CPP = {"Q4_K": 4.99824e-3, "Q5_K": 1.28748e-3, "Q6_K": 3.12006e-4}


def gaussian(rows: int, columns: int, seed: int = 5) -> np.ndarray:
    """Normal values from numpy's frozen legacy stream."""
    return np.random.RandomState(seed).standard_normal((rows, columns)).astype(np.float32)


def error(dtype: str, rows: np.ndarray, importance: np.ndarray | None = None) -> float:
    """Weighted squared error of our rounding, as the stored bytes are read by the gguf package."""
    blocks = round_to_least_error(rows, GGUF_BLOCKS[dtype].scheme, importance)
    stored = reference_values(dtype, join(dtype, blocks)).astype(np.float64)
    weights = 1.0 if importance is None else importance
    return float((weights * (stored - rows) ** 2).sum())


@pytest.mark.parametrize("dtype", GGUF_BLOCKS)
def test_joining_what_was_split_gives_the_same_bytes(dtype):
    raw = random_rows(dtype, 7, 3 * GGUF_BLOCKS[dtype].columns)
    assert (join(dtype, split(dtype, raw)) == raw).all()


def test_blocks_of_another_scheme_are_not_joined():
    blocks = from_floats(gaussian(2, 64), "q8")
    with pytest.raises(ValueError, match="Q4_0 blocks hold scheme q4, not q8"):
        join("Q4_0", blocks)


@pytest.mark.parametrize("dtype", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_the_error_is_below_that_of_the_format_s_reference_rounding(dtype):
    rows = gaussian(64, 512)
    plain = reference_values(dtype, quantize(rows, gguf.GGMLQuantizationType[dtype]))
    assert error(dtype, rows) < 0.95 * float(((plain - rows).astype(np.float64) ** 2).sum())


@pytest.mark.parametrize("dtype", LLAMA_CPP)
def test_the_error_is_below_that_of_llama_cpp_s_search(dtype):
    rows = gaussian(64, 512)
    assert error(dtype, rows) / float((rows.astype(np.float64) ** 2).sum()) < 0.98 * LLAMA_CPP[dtype]


def test_a_scale_is_as_good_as_the_best_of_a_dense_scan():
    rows = gaussian(40, 32, seed=6)
    found = ((values(round_to_least_error(rows, "q4")) - rows) ** 2).sum(axis=1)
    ends = np.linspace(5.5, 10.0, 4001, dtype=np.float32)
    scales = np.abs(rows).max(axis=1)[:, None] / np.concatenate([ends, -ends])[None]
    codes = np.clip(np.rint(rows[:, None] / scales[..., None]), -8, 7)
    best = ((codes * scales[..., None] - rows[:, None]) ** 2).sum(axis=2).min(axis=1)
    assert found.sum() < 1.01 * best.sum()


@pytest.mark.parametrize("dtype", ["Q4_0", "Q4_1", "Q4_K", "Q6_K"])
def test_importance_moves_the_error_to_where_it_matters_less(dtype):
    rows = gaussian(32, 256)
    importance = np.where(np.arange(256) % 4 == 0, 30.0, 0.1).astype(np.float32)
    weighed, alike = (round_to_least_error(rows, GGUF_BLOCKS[dtype].scheme, i) for i in (importance, None))
    squares = [((values(blocks) - rows) ** 2).sum(axis=0) for blocks in (weighed, alike)]
    assert squares[0][::4].sum() < 0.7 * squares[1][::4].sum()
    assert squares[0].sum() > squares[1].sum()


@pytest.mark.parametrize("dtype", GGUF_BLOCKS)
def test_equal_importance_is_none(dtype):
    rows = gaussian(8, 256)
    scheme = GGUF_BLOCKS[dtype].scheme
    equal = round_to_least_error(rows, scheme, np.full(256, 7.0, np.float32))
    alike = round_to_least_error(rows, scheme)
    assert (join(dtype, equal) == join(dtype, alike)).all()


@pytest.mark.parametrize("dtype", GGUF_BLOCKS)
def test_rows_do_not_depend_on_each_other(dtype):
    rows = gaussian(9, 512)
    whole = join(dtype, round_to_least_error(rows, GGUF_BLOCKS[dtype].scheme))
    alone = join(dtype, round_to_least_error(rows[4:6], GGUF_BLOCKS[dtype].scheme))
    assert (whole[4:6] == alone).all()


@pytest.mark.parametrize("dtype", GGUF_BLOCKS)
@pytest.mark.parametrize("importance", [None, np.linspace(0.1, 7.3, 256)])
@pytest.mark.parametrize("value", [0.0, 3.0, -2.5])
def test_rows_of_one_value_are_near_it(dtype, value, importance):
    rows = np.full((2, 256), value, np.float32)
    stored = values(round_to_least_error(rows, GGUF_BLOCKS[dtype].scheme, importance))
    np.testing.assert_allclose(stored, rows, rtol=2e-3, atol=0)


@pytest.mark.parametrize("dtype", GGUF_BLOCKS)
def test_columns_beyond_the_last_are_zero_codes_and_do_not_count(dtype):
    scheme, block = GGUF_BLOCKS[dtype].scheme, GGUF_BLOCKS[dtype].columns
    rows = gaussian(3, block + 5)
    blocks = round_to_least_error(rows, scheme)
    assert blocks.blocks == 2
    codes = blocks.codes.transpose(2, 1, 0).copy().view(np.uint8).reshape(3, 2, block)
    assert (codes[:, 1, 5:] == 0).all()
    packed = unpack(pack(blocks, "rows"), scheme, "rows", rows.shape)
    assert ((packed - rows) ** 2).sum() < 0.02 * (rows**2).sum()


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [(np.full((1, 32), np.nan), "not finite"), (np.full((1, 32), 1e6), "end at 65504")],
)
def test_values_that_cannot_be_held_are_refused(rows, complaint):
    with pytest.raises(RoundingError, match=complaint):
        round_to_least_error(rows.astype(np.float32), "q4")


@pytest.mark.parametrize("importance", [np.ones(31), np.full(32, -1.0), np.full(32, np.inf)])
def test_an_importance_that_is_no_weight_is_refused(importance):
    with pytest.raises(ValueError, match="32 finite numbers of 0 or more"):
        round_to_least_error(gaussian(1, 32), "q4", importance)


def test_an_importance_of_zero_everywhere_counts_all_alike():
    rows = gaussian(4, 64)
    zero = round_to_least_error(rows, "q4", np.zeros(64, np.float32))
    assert (zero.codes == round_to_least_error(rows, "q4").codes).all()


def test_float_schemes_have_nothing_to_choose():
    with pytest.raises(ValueError, match="f16 has no codes"):
        round_to_least_error(gaussian(1, 32), "f16")
