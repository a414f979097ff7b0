"""Blocks of 256 columns whose groups' scales are small integers times a half: q4k, q5k, q6k.

First each group is fitted alone (`group_fit`), then the block's half is chosen so that the groups' scales
round well, then integers and halves are improved in turn: every group tries the neighbours of its integers
with new codes, and least squares refits the halves. Shapes as in `group_fit`; a half has an entry for each
[blocks, rows].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from edgeseek.quantize.group_fit import Codes, fit_scale, fit_scale_and_offset, nearest, total
from edgeseek.quantize.packing import Floats

#: Largest six-bit scale.
_SIX_BITS = 63
#: What the largest group's scale may become, below the largest integer.
_BELOW = (0, 2, 5)
_ROUNDS = 2
_NEIGHBOURS = tuple(step for step in product((-1, 0, 1), repeat=2) if step != (0, 0))


@dataclass(frozen=True)
class TwoLevel:
    """`d`, `dmin` [blocks, rows] are halves in float32; `scale`, `low` [groups, blocks, rows] integers.

    A value is d · scale · code − dmin · low; q6k has neither dmin nor low. `codes` is
    [groups, columns, blocks, rows].
    """

    d: Floats
    dmin: Floats
    scale: Floats
    low: Floats
    codes: Floats


def fit_with_offsets(values: Floats, weights: Floats | None, highest: int) -> TwoLevel:
    """q4k (`highest` 15) or q5k (31)."""
    codes = Codes(0, highest)
    wanted, offset = fit_scale_and_offset(values, weights, highest, never_above=True)
    best = _least(_halves_for(values, weights, codes, wanted, -offset))
    for _ in range(_ROUNDS):
        best = _neighbours(values, weights, codes, best)
        best = _refit_both(values, weights, codes, best)
    return _chosen(values, weights, codes, best)


def fit_signed(values: Floats, weights: Floats | None) -> TwoLevel:
    """q6k: codes −32 … 31, scales −128 … 127."""
    codes = Codes(-32, 31)
    wanted = fit_scale(values, weights, codes)
    place = np.abs(wanted).argmax(axis=0)[None]
    extreme = np.take_along_axis(wanted, place, axis=0)[0]

    def grid(d: Floats, scale: Floats) -> _State:
        return _measured(values, weights, codes, _Grid(d, np.zeros_like(d), scale, np.zeros_like(scale)))

    def starts() -> Iterator[_State]:
        for below in _BELOW:
            d = half(extreme / np.float32(below - 128))
            yield grid(d, _integers(wanted, d, -128, 127))

    best = _least(starts())
    for _ in range(_ROUNDS):
        for step in (-1, 1):
            scale = np.clip(best.grid.scale + np.float32(step), -128, 127)
            best = _by_group(best, grid(best.grid.d, scale))
        chosen, _ = _encode(values, weights, codes, best.grid)
        chosen *= best.grid.scale[:, None]
        d = half(_ratio(_all(values * chosen, weights), _all(chosen * chosen, weights), best.grid.d))
        best = _least((best, grid(d, best.grid.scale)))
    return _chosen(values, weights, codes, best)


def half(values: Floats) -> Floats:
    """Rounded to what a half holds, as float32; beyond its range the largest half."""
    result: Floats = np.clip(values, -65504, 65504).astype(np.float16).astype(np.float32)
    return result


@dataclass(frozen=True)
class _Grid:
    """The values that codes stand for; fields as in `TwoLevel`."""

    d: Floats
    dmin: Floats
    scale: Floats
    low: Floats


@dataclass(frozen=True)
class _State:
    """A grid and the weighted squared error of each group on it."""

    grid: _Grid
    error: Floats


def _encode(values: Floats, weights: Floats | None, codes: Codes, grid: _Grid) -> tuple[Floats, Floats]:
    """The nearest codes and the weighted squared error of each group."""
    step = grid.d * grid.scale
    # Only grids whose codes begin at 0 are lowered.
    raised = values if codes.low else values + (grid.dmin * grid.low)[:, None]
    chosen = nearest(raised, step, codes)
    rest = raised - step[:, None] * chosen
    rest *= rest
    return chosen, total(rest, weights)


def _measured(values: Floats, weights: Floats | None, codes: Codes, grid: _Grid) -> _State:
    return _State(grid, _encode(values, weights, codes, grid)[1])


def _halves_for(
    values: Floats, weights: Floats | None, codes: Codes, wanted: Floats, lowered: Floats
) -> Iterator[_State]:
    for below in _BELOW:
        d = half(wanted.max(axis=0) / np.float32(_SIX_BITS - below))
        dmin = half(lowered.max(axis=0) / np.float32(_SIX_BITS - below))
        scale, low = _integers(wanted, d, 0, _SIX_BITS), _integers(lowered, dmin, 0, _SIX_BITS)
        yield _measured(values, weights, codes, _Grid(d, dmin, scale, low))


def _integers(wanted: Floats, unit: Floats, low: int, high: int) -> Floats:
    inverse = np.divide(1, unit, out=np.zeros_like(unit), where=unit != 0)
    result: Floats = np.clip(np.rint(wanted * inverse), low, high)
    return result


def _least(states: Iterable[_State]) -> _State:
    """For each block the state with the least error."""
    first, *others = states
    for other in others:
        better = other.error.sum(axis=0) < first.error.sum(axis=0)
        pairs = zip(_parts(first), _parts(other), strict=True)
        first = _state(*(np.where(better, b, a) for a, b in pairs))
    return first


def _by_group(state: _State, other: _State) -> _State:
    """For each group the integers with the lesser error; both states have the same halves."""
    better = other.error < state.error
    pairs = zip(_parts(state)[2:], _parts(other)[2:], strict=True)
    return _state(state.grid.d, state.grid.dmin, *(np.where(better, b, a) for a, b in pairs))


def _parts(state: _State) -> tuple[Floats, ...]:
    grid = state.grid
    return grid.d, grid.dmin, grid.scale, grid.low, state.error


def _state(d: Floats, dmin: Floats, scale: Floats, low: Floats, error: Floats) -> _State:
    """Inverse of `_parts`."""
    return _State(_Grid(d, dmin, scale, low), error)


def _chosen(values: Floats, weights: Floats | None, codes: Codes, state: _State) -> TwoLevel:
    grid = state.grid
    return TwoLevel(grid.d, grid.dmin, grid.scale, grid.low, codes=_encode(values, weights, codes, grid)[0])


def _neighbours(values: Floats, weights: Floats | None, codes: Codes, state: _State) -> _State:
    best, grid = state, state.grid
    for step, lift in _NEIGHBOURS:
        scale = np.clip(grid.scale + np.float32(step), 0, _SIX_BITS)
        low = np.clip(grid.low + np.float32(lift), 0, _SIX_BITS)
        best = _by_group(best, _measured(values, weights, codes, _Grid(grid.d, grid.dmin, scale, low)))
    return best


def _refit_both(values: Floats, weights: Floats | None, codes: Codes, state: _State) -> _State:
    """Least squares of the values against scale · code and −low, over the whole block."""
    grid = state.grid
    chosen, _ = _encode(values, weights, codes, grid)
    chosen *= grid.scale[:, None]
    ones: Floats = np.broadcast_to(np.float32(1), values.shape)
    aa = _all(chosen * chosen, weights)
    ab = (grid.low * total(chosen, weights)).sum(axis=0)
    bb = (grid.low * grid.low * total(ones, weights)).sum(axis=0)
    xa = _all(values * chosen, weights)
    xb = (grid.low * total(values, weights)).sum(axis=0)
    determinant = aa * bb - ab * ab
    d = half(_ratio(xa * bb - xb * ab, determinant, grid.d))
    dmin = half(_ratio(ab * xa - aa * xb, determinant, grid.dmin))
    # Where no group is lowered there is nothing to fit beside d.
    d = np.where(bb == 0, half(_ratio(xa, aa, grid.d)), d)
    sound = (d > 0) & (dmin >= 0)
    d, dmin = np.where(sound, d, grid.d), np.where(sound, dmin, grid.dmin)
    return _least((state, _measured(values, weights, codes, _Grid(d, dmin, grid.scale, grid.low))))


def _all(values: Floats, weights: Floats | None) -> Floats:
    """Weighted sums over whole blocks."""
    result: Floats = total(values, weights).sum(axis=0)
    return result


def _ratio(numerator: Floats, denominator: Floats, otherwise: Floats) -> Floats:
    return np.divide(numerator, denominator, out=otherwise.copy(), where=denominator > 0)
