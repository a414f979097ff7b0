"""GPTQ leaves a lesser output error than rounding to nearest, and is that where inputs are uncorrelated."""

from __future__ import annotations

import numpy as np
import pytest

from edgeseek.quantize.gptq import Gptq, cholesky_of_inverse, round_with_feedback
from edgeseek.quantize.grid import codes_of, grid_of, joined, with_codes
from edgeseek.quantize.least_error import round_to_least_error
from edgeseek.quantize.packing import Blocks, Floats, pack, values
from edgeseek.quantize.rounding import LeastError
from edgeseek.quantize.schemes import SCHEMES, Scheme

CODED: tuple[Scheme, ...] = ("q8", "q4", "q4z", "q5", "q5z", "q4k", "q5k", "q6k")
COLUMNS, ROWS = 512, 48


def weights(seed: int = 0, columns: int = COLUMNS) -> Floats:
    return np.random.default_rng(seed).standard_normal((ROWS, columns)).astype(np.float32)


def correlated(columns: int = COLUMNS) -> Floats:
    """E[x xᵀ] of inputs that share a few directions."""
    random = np.random.default_rng(1)
    mixing = random.standard_normal((columns, columns)) * np.geomspace(1, 0.02, columns)[:, None]
    inputs = random.standard_normal((4 * columns, columns)) @ mixing
    result: Floats = (inputs.T @ inputs / len(inputs)).astype(np.float32)
    return result


def output_error(rounded: Blocks, original: Floats, hessian: Floats) -> float:
    moved = (values(rounded)[:, : original.shape[1]] - original).astype(np.float64)
    return float(np.einsum("ij,jk,ik->", moved, hessian.astype(np.float64), moved))


@pytest.mark.parametrize("scheme", CODED)
def test_a_grid_holds_exactly_what_the_blocks_stand_for(scheme: Scheme) -> None:
    rounded = round_to_least_error(weights(), scheme)
    grid, codes = grid_of(rounded), codes_of(rounded)
    back = np.stack([grid.values(column, codes[column]) for column in range(COLUMNS)], 1)
    np.testing.assert_allclose(back, values(rounded), rtol=0, atol=1e-6)
    chosen = np.stack([grid.codes(column, back[:, column]) for column in range(COLUMNS)])
    step = np.repeat(grid.step, grid.width, axis=0)
    assert (chosen[step != 0] == codes[step != 0]).all()
    assert (pack(with_codes(rounded, codes), "tiles") == pack(rounded, "tiles")).all()


@pytest.mark.parametrize("scheme", CODED)
def test_correlated_inputs_lose_much_less_with_feedback(scheme: Scheme) -> None:
    original, hessian = weights(), correlated()
    factor, diagonal = cholesky_of_inverse(hessian), np.ascontiguousarray(hessian.diagonal())
    assert factor is not None
    nearest = round_to_least_error(original, scheme, diagonal)
    fed = round_with_feedback(original, scheme, factor, diagonal)
    assert output_error(fed, original, hessian) < 0.35 * output_error(nearest, original, hessian)


@pytest.mark.parametrize("scheme", CODED)
def test_without_correlation_it_is_rounding_to_nearest(scheme: Scheme) -> None:
    original, ones = weights(), np.ones(COLUMNS, np.float32)
    factor = cholesky_of_inverse(np.eye(COLUMNS, dtype=np.float32))
    assert factor is not None
    fed = round_with_feedback(original, scheme, factor, ones)
    each = SCHEMES[scheme].block
    parts = [
        round_to_least_error(original[:, at : at + each], scheme, ones[at : at + each])
        for at in range(0, COLUMNS, each)
    ]
    np.testing.assert_allclose(values(fed), values(joined(parts)), rtol=0, atol=1e-6)


def test_columns_that_do_not_fill_a_block_are_rounded_and_padding_holds_no_codes() -> None:
    original, hessian = weights(columns=80), correlated(80)
    factor = cholesky_of_inverse(hessian)
    assert factor is not None
    fed = round_with_feedback(original, "q4", factor, np.ascontiguousarray(hessian.diagonal()))
    assert values(fed).shape == (ROWS, 96)
    assert (codes_of(fed)[80:] == 0).all()
    assert np.abs(values(fed)[:, :80] - original).max() < 1.0


def test_rows_are_rounded_alike_in_any_pieces() -> None:
    original, hessian = weights(), correlated()
    rounding = Gptq(lambda _: hessian, LeastError())
    whole = rounding.prepare("m", COLUMNS, "q4k")(original)
    parts = [rounding.prepare("m", COLUMNS, "q4k")(original[start : start + 16]) for start in (0, 16, 32)]
    tiles = np.concatenate([pack(part, "tiles") for part in parts])
    assert (pack(whole, "tiles") == tiles).all()


def test_a_matrix_without_hessian_is_rounded_plainly_and_named() -> None:
    rounding = Gptq(lambda _: None, LeastError())
    found = rounding.prepare("layers.0.attn.k_b.weight", COLUMNS, "q4")(weights())
    assert (pack(found, "tiles") == pack(round_to_least_error(weights(), "q4"), "tiles")).all()
    assert rounding.without == ["layers.0.attn.k_b.weight"]


def test_inputs_that_never_vary_do_not_stop_it() -> None:
    hessian = correlated()
    hessian[7], hessian[:, 7] = 0, 0
    factor = cholesky_of_inverse(hessian)
    assert factor is not None
    assert np.isfinite(factor).all()


def test_a_factor_is_that_of_the_damped_inverse() -> None:
    hessian = correlated(64)
    factor = cholesky_of_inverse(hessian, 0.01)
    assert factor is not None
    assert (np.tril(factor, -1) == 0).all()
    damped = hessian + 0.01 * hessian.diagonal().mean() * np.eye(64)
    np.testing.assert_allclose(factor.T @ factor @ damped, np.eye(64), atol=1e-3)


def test_sums_that_are_not_positive_definite_are_damped_more() -> None:
    hessian = correlated(64)
    values_of, vectors = np.linalg.eigh(hessian)
    values_of[0] = -0.05 * hessian.diagonal().mean()
    spoiled = (vectors * values_of @ vectors.T).astype(np.float32)
    assert cholesky_of_inverse(spoiled) is not None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e9])
def test_a_hessian_that_is_of_no_use_is_named_and_rounding_is_plain(bad: float) -> None:
    hessian = correlated()
    hessian[3, 3] = bad
    rounding = Gptq(lambda _: hessian, LeastError())
    found = rounding.prepare("m", COLUMNS, "q4")(weights())
    assert (pack(found, "tiles") == pack(round_to_least_error(weights(), "q4"), "tiles")).all()
    assert rounding.without == ["m"]


def test_a_hessian_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"m has 512 columns and a Hessian of shape \(4, 4\)"):
        Gptq(lambda _: np.eye(4, dtype=np.float32), LeastError()).prepare("m", COLUMNS, "q4")
