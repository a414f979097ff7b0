"""The scale of a group, and its offset, that leave the least weighted squared error.

Rounding to nearest is best for a given scale, and least squares gives the best scale for given codes
(Lloyd, Least squares quantization in PCM, 1982), but the two together have many local minima. So each
group is started from several scales around that which just holds its extremes, and the best is refined.

Arrays are [groups, columns, blocks, rows], rows innermost, so that every pass runs along contiguous
memory; `weights` is [groups, columns, blocks, 1] or None for all alike. A fit has an entry for each
[groups, blocks, rows]. Knows nothing of schemes or files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgeseek.quantize.packing import Floats

#: Where the extreme value is put, in steps beyond the last code.
_ENDS = (-1.2, -0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9, 1.2)
#: The same for the lowest and the highest value of a group with an offset, each with each.
_MARGINS = (-0.3, 0.2, 0.7, 1.2)
_REFINEMENTS = 2
#: Share of its terms below which a difference of sums of binary32 means nothing.
_NOISE = np.float32(1e-5)


@dataclass(frozen=True)
class Codes:
    """The integers a group may use, both ends included."""

    low: int
    high: int


def total(values: Floats, weights: Floats | None) -> Floats:
    """Weighted sums over each group's columns."""
    result: Floats = (values if weights is None else weights * values).sum(axis=1)
    return result


def nearest(values: Floats, scale: Floats, codes: Codes) -> Floats:
    """The code next to value / scale, 0 where the scale is 0; `scale` is a fit's [groups, blocks, rows]."""
    result: Floats = values * _quotient(np.float32(1), scale)[:, None]
    np.rint(result, out=result)
    np.clip(result, codes.low, codes.high, out=result)
    return result


def fit_scale(values: Floats, weights: Floats | None, codes: Codes) -> Floats:
    """Scales d for values ≈ d · code, which may be negative."""
    weighted = values if weights is None else weights * values
    places = np.abs(values).argmax(axis=1)[:, None]
    extreme = np.take_along_axis(values, places, axis=1)[:, 0]
    best = np.zeros_like(extreme)
    scale = np.zeros_like(extreme)

    def attempt(start: Floats) -> None:
        chosen = nearest(values, start, codes)
        product = (weighted * chosen).sum(axis=1)
        chosen *= chosen
        found = _quotient(product, total(chosen, weights))
        # The error is Σ w x² less this.
        gain = product * found
        better = gain > best
        np.copyto(best, gain, where=better)
        np.copyto(scale, found, where=better)

    # With as many codes as q8 has, cutting the extreme off never pays by more than a step.
    ends = _ENDS if codes.high < 64 else _ENDS[4:7]
    for end in (codes.low, codes.high) if codes.low != -codes.high else (codes.high,):
        for beyond in ends:
            attempt(extreme / np.float32(end + (beyond if end > 0 else -beyond)))
    for _ in range(_REFINEMENTS):
        attempt(scale.copy())
    return scale


def fit_scale_and_offset(
    values: Floats, weights: Floats | None, highest: int, *, never_above: bool
) -> tuple[Floats, Floats]:
    """Scales d ≥ 0 and offsets m for values ≈ d · code + m with codes 0 … `highest`.

    `never_above` keeps every offset at 0 or below, as the K types of GGUF need it.
    """
    codes = Codes(0, highest)
    sums = _Sums(values, weights)
    low, high = values.min(axis=1), values.max(axis=1)
    if never_above:
        low = np.minimum(low, 0)
    best = np.full_like(low, -np.inf)
    scale, offset = np.zeros_like(low), np.zeros_like(low)

    def attempt(start: Floats, begin: Floats) -> None:
        found, moved, gain = sums.fit(nearest(values - begin[:, None], start, codes), never_above)
        better = gain > best
        np.copyto(best, gain, where=better)
        np.copyto(scale, found, where=better)
        np.copyto(offset, moved, where=better)

    step = (high - low) / np.float32(highest)
    for below in _MARGINS:
        for above in _MARGINS:
            shrunk = step * np.float32(1 - (below + above) / highest)
            attempt(shrunk, low + np.float32(below) * step)
    for _ in range(_REFINEMENTS):
        attempt(scale.copy(), offset.copy())
    return scale, offset


class _Sums:
    """Least squares of values against codes with an offset."""

    def __init__(self, values: Floats, weights: Floats | None) -> None:
        self.weights = weights
        self.weighted = values if weights is None else weights * values
        self.one = np.float32(values.shape[1]) if weights is None else weights.sum(axis=1)
        self.value = self.weighted.sum(axis=1)

    def fit(self, chosen: Floats, never_above: bool) -> tuple[Floats, Floats, Floats]:
        """Scale, offset, and by how much they lower the error below Σ w x²."""
        code = total(chosen, self.weights)
        product = (self.weighted * chosen).sum(axis=1)
        chosen *= chosen
        square = total(chosen, self.weights)
        determinant = self.one * square - code * code
        scale = _quotient(self.one * product - code * self.value, determinant)
        offset = _quotient(square * self.value - code * product, determinant)
        # Codes that are all alike say nothing of the scale; the determinant is then rounding noise.
        flat = determinant <= _NOISE * self.one * square
        scale = np.where(flat, np.float32(0), scale)
        offset = np.where(flat, _quotient(self.value, np.broadcast_to(self.one, flat.shape)), offset)
        if never_above:
            positive = offset > 0
            scale = np.where(positive, _quotient(product, square), scale)
            offset = np.where(positive, np.float32(0), offset)
        gain = scale * (2 * product - scale * square - 2 * offset * code)
        gain += offset * (2 * self.value - offset * self.one)
        return scale, offset, gain


def _quotient(numerator: Floats | np.float32, denominator: Floats) -> Floats:
    """The quotient, 0 where the denominator is."""
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator != 0)
