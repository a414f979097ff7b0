from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgeseek.errors import UsageError
from edgeseek.quantize.packing import pack, unpack, values
from edgeseek.quantize.report import SquareSums, square_sums
from edgeseek.quantize.rtn import RoundingError, float_blocks, floats, from_floats
from edgeseek.quantize.schemes import SCHEMES, parse_rounding_scheme


def row(*numbers: float) -> np.ndarray:
    return np.array([[*numbers, *[0.0] * (32 - len(numbers))]], np.float32)


def test_q8_scales_the_largest_magnitude_to_127():
    blocks = from_floats(row(127.0, -63.4, 0.5, 1.5, -127.0), "q8")
    codes = blocks.codes.reshape(-1).view(np.int8)
    assert blocks.scales["d"].view("<f2").item() == 1.0
    assert codes[:6].tolist() == [127, -63, 0, 2, -127, 0]


@pytest.mark.parametrize(("sign", "scale"), [(1.0, -1.0), (-1.0, 1.0)])
def test_q4_puts_the_largest_magnitude_on_the_code_without_a_mirror(sign, scale):
    blocks = from_floats(row(8 * sign, -7 * sign, 3 * sign, 0.4 * sign), "q4")
    codes = blocks.codes.reshape(-1).view(np.uint8)
    assert blocks.scales["d"].view("<f2").item() == scale
    assert codes[0] == 0
    assert values(blocks)[0, :5].tolist() == [8 * sign, -7 * sign, 3 * sign, 0.0, 0.0]


@pytest.mark.parametrize("scheme", ["q8", "q4"])
def test_columns_beyond_the_last_are_zero_codes(scheme):
    rows = np.linspace(-1, 1, 5 * 40, dtype=np.float32).reshape(5, 40)
    blocks = from_floats(rows, scheme)
    codes = blocks.codes.transpose(2, 1, 0).copy().view(np.uint8).reshape(5, 64)
    assert (codes[:, 40:] == 0).all()
    packed = pack(blocks, "tiles")
    close = unpack(packed, scheme, "tiles", (5, 40))
    assert close.shape == (5, 40)
    np.testing.assert_allclose(close, rows, atol=2 / 14 if scheme == "q4" else 1 / 200)


@settings(deadline=None, max_examples=60)
@given(
    rows=hnp.arrays(
        np.float32, st.tuples(st.integers(1, 20), st.integers(1, 70)), elements=st.floats(-100, 100, width=32)
    ),
    scheme=st.sampled_from(["q8", "q4"]),
)
def test_no_value_moves_by_more_than_rounding_allows(rows, scheme):
    blocks = from_floats(rows, scheme)
    steps = np.abs(blocks.scales["d"][0].view("<f2").astype(np.float64)).T.repeat(32, axis=1)
    moved = np.abs(values(blocks).astype(np.float64) - np.pad(rows, ((0, 0), (0, -rows.shape[1] % 32))))
    # Half a step; a whole one at q4's end without a mirror; the half's own rounding on top.
    bound = steps * (1.0 if scheme == "q4" else 0.5) * 1.01 + 127 * 2.0**-25
    assert (moved[:, : rows.shape[1]] <= bound[:, : rows.shape[1]]).all()


def test_a_value_of_zeros_stays_zero():
    for scheme in ("q8", "q4"):
        np.testing.assert_array_equal(values(from_floats(np.zeros((3, 32), np.float32), scheme)), 0)


def test_floats_widen_exactly():
    numbers = np.array([[1.0, -2.5, 3.140625, 0.0078125]], np.float32)
    half = numbers.astype(np.float16)
    brain = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(floats("F32", numbers.view(np.uint8)), numbers)
    np.testing.assert_array_equal(floats("F16", half.view(np.uint8)), numbers)
    np.testing.assert_array_equal(floats("BF16", brain.view(np.uint8)), numbers)


@pytest.mark.parametrize("scheme", ["f32", "f16"])
def test_halves_are_kept_bit_for_bit(scheme):
    half = np.random.default_rng(1).standard_normal((33, 7)).astype(np.float16)
    blocks = float_blocks("F16", half.view(np.uint8), scheme)
    for layout in ("tiles", "rows"):
        got = unpack(pack(blocks, layout), scheme, layout, (33, 7))
        np.testing.assert_array_equal(got, half.astype(np.float32))


@pytest.mark.parametrize("scheme", ["f32", "f16", "q8", "q4"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(scheme, bad):
    rows = np.ones((2, 64), np.float32)
    rows[1, 40] = bad
    with pytest.raises(RoundingError, match="not finite"):
        from_floats(rows, scheme)
    if scheme == "f16":
        with pytest.raises(RoundingError, match="not finite"):
            float_blocks("F16", rows.astype(np.float16).view(np.uint8), scheme)


def test_a_value_beyond_a_half_is_refused_for_f16_and_clipped_scale_for_q8():
    with pytest.raises(RoundingError, match="70000"):
        from_floats(row(70000.0), "f16")
    assert values(from_floats(row(1e7), "q8"))[0, 0] == pytest.approx(65504.0 * 127, rel=0.3)


def test_plain_rounding_does_not_produce_two_level_schemes():
    with pytest.raises(ValueError, match="q4k"):
        from_floats(np.ones((1, 256), np.float32), "q4k")


def test_relative_error_of_known_values():
    original = np.array([[3.0, 4.0]], np.float32)
    rounded = np.array([[3.0, 4.5, 9.0]], np.float32)
    assert square_sums(original, rounded).relative_rms == 0.1
    total = square_sums(original, rounded) + square_sums(original, rounded)
    assert (total.difference, total.original) == (0.5, 50.0)
    assert SquareSums().relative_rms == 0.0
    assert SquareSums(1.0, 0.0).relative_rms == float("inf")


def test_a_scheme_that_a_user_may_ask_for_is_found_by_name():
    assert [parse_rounding_scheme(name) for name in ("f32", "f16", "q8", "q4")] == ["f32", "f16", "q8", "q4"]
    for name in ("q4k", "Q8", "int4", ""):
        with pytest.raises(UsageError, match="choose one of f32, f16, q8, q4"):
            parse_rounding_scheme(name)


def test_bits_per_weight_are_those_of_the_design():
    wanted = {"q4": 4.5, "q4z": 5, "q5": 5.5, "q5z": 6, "q8": 8.5, "q4k": 4.5, "q5k": 5.5, "q6k": 6.5625}
    assert {name: SCHEMES[name].bits_per_weight for name in wanted} == wanted
