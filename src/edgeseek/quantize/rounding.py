"""How rows of a matrix become codes: the protocol that every method of rounding has, and plain rounding.

Rows are independent of each other, so a writer may round them in pieces and in parallel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from edgeseek.quantize.least_error import round_to_least_error
from edgeseek.quantize.packing import Blocks, Floats
from edgeseek.quantize.schemes import Scheme

#: Rows [n, columns] to blocks; thread-safe. Raises RoundingError for what the scheme cannot hold.
RoundRows = Callable[[Floats], Blocks]
#: Called with a matrix's package name; its columns' importance [columns], or None where all count alike.
Importance = Callable[[str], Floats | None]


class Rounding(Protocol):
    """A method of rounding."""

    @property
    def piece_weights(self) -> int:
        """How many weights a piece of rows should have, about."""
        ...

    def prepare(self, name: str, columns: int, scheme: Scheme) -> RoundRows:
        """What rounds the rows of the matrix of that package name to `scheme`, which has codes."""
        ...


class LeastError:
    """Rounds to nearest with the scales that leave the least squared error, weighted by `importance`."""

    #: The search's arrays then stay in a core's own cache.
    piece_weights = 1 << 16

    def __init__(self, importance: Importance | None = None) -> None:
        self._importance = importance

    def prepare(self, name: str, columns: int, scheme: Scheme) -> RoundRows:  # noqa: ARG002
        """See `Rounding.prepare`."""
        importance = None if self._importance is None else self._importance(name)
        return lambda rows: round_to_least_error(rows, scheme, importance)
