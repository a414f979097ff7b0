"""How far rounding moved the weights, gathered piece by piece.

Knows nothing of files or models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgeseek.quantize.packing import Floats


@dataclass(frozen=True)
class SquareSums:
    """Sums over some values: of squared differences, and of squared originals."""

    difference: float = 0.0
    original: float = 0.0

    def __add__(self, other: SquareSums) -> SquareSums:
        return SquareSums(self.difference + other.difference, self.original + other.original)

    @property
    def relative_rms(self) -> float:
        """√(Σ (w′ − w)² / Σ w²); 0 where both sums are 0, infinite where only the original's is."""
        if self.difference == 0.0:
            return 0.0
        if self.original == 0.0:
            return float("inf")
        return float(np.sqrt(self.difference / self.original))


def square_sums(original: Floats, rounded: Floats) -> SquareSums:
    """The sums of one piece; `rounded` may have padding columns beyond the original's."""
    difference = rounded[:, : original.shape[1]] - original
    return SquareSums(_sum_of_squares(difference), _sum_of_squares(original))


def _sum_of_squares(values: Floats) -> float:
    # Rows are summed in float32 by pairs; float64 across rows keeps large tensors accurate.
    return float(np.einsum("ij,ij->i", values, values).astype(np.float64).sum())
