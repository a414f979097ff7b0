"""AWQ (Lin et al., arXiv 2306.00978): columns that see large inputs are scaled up before rounding.

Multiplying column j of a matrix by s_j and dividing its input by s_j changes nothing but where rounding
errors fall. s = (mean |x|)^α, normalized; α is searched for the least error of the layer's output on sampled
inputs. Takes weights and inputs, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgeseek.quantize.packing import Floats

#: Exponents that are tried, beside 0, which changes nothing.
_EXPONENTS = tuple(i / 10 for i in range(1, 11))
#: A scale outside of 1/LIMIT … LIMIT would waste the range of what holds its inverse.
LIMIT = np.float32(64)

#: Rounds rows [n, columns] with an importance [columns] and gives back what they then stand for.
RoundTrip = Callable[[Floats, Floats], Floats]


def search(
    matrices: Sequence[tuple[Floats, RoundTrip]],
    mean_absolute: Floats,
    importance: Floats,
    inputs: Floats,
    spread: Callable[[Floats], Floats] = lambda scale: scale,
) -> Floats:
    """The scale [columns] of the matrices that share an input, ones where none is better than none.

    `matrices` are rows [n, columns] with what rounds them; `mean_absolute` and `importance` are those of the
    input, `inputs` rows of it [m, columns]. `spread` makes a scale one that can be folded away, where the
    columns hang together.
    """
    best = np.ones(len(mean_absolute), np.float32)
    least = _error(matrices, best, importance, inputs)
    for exponent in _EXPONENTS:
        scale = spread(_scale(mean_absolute, exponent))
        error = _error(matrices, scale, importance, inputs)
        if error < least:
            best, least = scale, error
    return best


def _scale(mean_absolute: Floats, exponent: float) -> Floats:
    floor = np.float32(1e-4) * mean_absolute.max(initial=0)
    scale = np.maximum(mean_absolute, max(floor, np.float32(1e-12))) ** np.float32(exponent)
    # The range's geometric middle becomes 1.
    scale /= np.sqrt(scale.max() * scale.min())
    result: Floats = np.clip(scale, 1 / LIMIT, LIMIT).astype(np.float32)
    return result


def _error(
    matrices: Sequence[tuple[Floats, RoundTrip]], scale: Floats, importance: Floats, inputs: Floats
) -> float:
    """Squared error of all outputs."""
    total = 0.0
    for rows, round_trip in matrices:
        moved = round_trip(rows * scale, importance / (scale * scale))[:, : rows.shape[1]] / scale
        moved -= rows
        output = inputs @ moved.T
        total += float(np.einsum("ij,ij->", output, output, dtype=np.float64))
    return total
