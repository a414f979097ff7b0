"""GPTQ (Frantar et al., arXiv 2210.17323): each column's rounding error is made up for by those after it.

With H = E[x xᵀ] of a linear layer's inputs, rounding weight w_i to q_i leaves the output error least when
every later weight moves by −(w_i − q_i) · U_ij / U_ii, U being the upper Cholesky factor of H⁻¹. Here the
scales of a block are chosen (weighted least squares, `least_error`) when its columns are reached, from
weights that carry what the columns before them left.

Takes weights and Hessians, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from edgeseek.quantize.grid import grid_of, joined, with_codes
from edgeseek.quantize.least_error import round_to_least_error
from edgeseek.quantize.packing import Blocks, Floats
from edgeseek.quantize.rounding import Rounding, RoundRows
from edgeseek.quantize.schemes import SCHEMES, Scheme

#: Share of the mean of H's diagonal that is added to it, so that inputs which hardly vary stay solvable.
DAMPING = 0.01
#: Columns after which what they left is applied to all the rest at once.
_LAZY = 128

#: Called with a matrix's package name; E[x xᵀ] of its inputs, [columns, columns], or None.
Hessians = Callable[[str], Floats | None]


class Gptq:
    """Rounds with error feedback where there is a Hessian, else as `fallback` does."""

    #: A loop over columns pays off over many rows.
    piece_weights = 1 << 22

    def __init__(self, hessians: Hessians, fallback: Rounding, damping: float = DAMPING) -> None:
        self._hessians, self._fallback, self._damping = hessians, fallback, damping
        #: Package names of matrices that were rounded without a Hessian, or whose Hessian was of no use.
        self.without: list[str] = []
        #: The last Hessian and its factor: matrices that share an input follow each other.
        self._last: tuple[Floats, Floats | None] | None = None

    def prepare(self, name: str, columns: int, scheme: Scheme) -> RoundRows:
        """See `Rounding.prepare`. Raises ValueError for a Hessian of another size."""
        hessian = self._hessians(name)
        if hessian is not None and hessian.shape != (columns, columns):
            raise ValueError(f"{name} has {columns} columns and a Hessian of shape {hessian.shape}")
        factor = None if hessian is None else self._factor(hessian)
        if hessian is None or factor is None:
            self.without.append(name)
            return self._fallback.prepare(name, columns, scheme)
        importance = np.ascontiguousarray(hessian.diagonal(), np.float32)
        return partial(round_with_feedback, scheme=scheme, factor=factor, importance=importance)

    def _factor(self, hessian: Floats) -> Floats | None:
        if self._last is None or self._last[0] is not hessian:
            self._last = None
            self._last = (hessian, cholesky_of_inverse(hessian, self._damping))
        return self._last[1]


def cholesky_of_inverse(hessian: npt.NDArray[np.floating], damping: float = DAMPING) -> Floats | None:
    """The upper triangular U with UᵀU = (H + λI)⁻¹, λ = `damping` times the mean of H's diagonal.

    Inputs that are always 0 get a 1 on the diagonal: their weights then round by themselves. Where H is not
    positive definite (sums in float32 are not exact), λ is made larger; None where that does not help or H
    is not finite. Works in float64 and takes about four matrices of that.
    """
    diagonal = hessian.diagonal().astype(np.float64)
    if not np.isfinite(hessian).all():
        return None
    for share in (damping, 10 * damping, 100 * damping):
        h = np.array(hessian, np.float64)
        h[np.diag_indices_from(h)] = np.where(diagonal > 0, diagonal + share * diagonal.mean(), 1.0)
        try:
            inverse = np.linalg.inv(h)
            inverse += inverse.T
            inverse *= 0.5
            return np.ascontiguousarray(np.linalg.cholesky(inverse).T, np.float32)
        except np.linalg.LinAlgError:
            continue
    return None


def round_with_feedback(rows: Floats, scheme: Scheme, factor: Floats, importance: Floats) -> Blocks:
    """Round `rows` [n, columns] to `scheme`; `factor` is `cholesky_of_inverse`'s, `importance` H's diagonal.

    Raises RoundingError as `round_to_least_error`.
    """
    columns, block = rows.shape[1], SCHEMES[scheme].block
    left = np.ascontiguousarray(rows.T, np.float32)
    parts = []
    for start in range(0, columns, block):
        stop = min(start + block, columns)
        # The scales are for what the columns of this block have become by now.
        chosen = round_to_least_error(
            np.ascontiguousarray(left[start:stop].T), scheme, importance[start:stop]
        )
        parts.append(_feed(left, start, stop, chosen, factor))
    return joined(parts)


def _feed(left: Floats, start: int, stop: int, chosen: Blocks, factor: Floats) -> Blocks:
    """Round the columns of one block in order; `left` [columns, rows] is changed from `start` on."""
    grid = grid_of(chosen)
    codes = np.empty((stop - start, left.shape[1]), np.float32)
    for begin in range(start, stop, _LAZY):
        end = min(begin + _LAZY, stop)
        errors = np.empty((end - begin, left.shape[1]), np.float32)
        for column in range(begin, end):
            found = grid.codes(column - start, left[column])
            codes[column - start] = found
            error = left[column] - grid.values(column - start, found)
            error /= factor[column, column]
            errors[column - begin] = error
            if column + 1 < end:
                left[column + 1 : end] -= factor[column, column + 1 : end, None] * error
        if end < len(left):
            left[end:] -= factor[begin:end, end:].T @ errors
    return with_codes(chosen, codes)
