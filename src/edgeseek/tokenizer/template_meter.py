"""How much work and memory one rendering of a chat template may use.

Owns the limits and the counters. Templates come with downloaded models, so they are untrusted
programs: every loop turn and call is counted, every value is measured before it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2.exceptions import SecurityError

#: Bits of the largest integer that arithmetic may produce.
_INTEGER_BITS = 4096
_CLOCK_INTERVAL = 64


@dataclass(frozen=True)
class TemplateLimits:
    """Bounds of one rendering; the defaults hold a chat of a million tokens.

    steps: loop turns, calls, filters and tests. value_size: characters or items of one value, with
    all that it contains. total_size: of all values together. source_size: characters of a template.
    """

    steps: int = 1_000_000
    value_size: int = 4 << 20
    total_size: int = 64 << 20
    source_size: int = 1 << 20
    seconds: float = 5.0


class Meter:
    """Counts one rendering's work; each method raises SecurityError when a limit is passed."""

    def __init__(self, limits: TemplateLimits, monotonic: Callable[[], float]) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._deadline = monotonic() + limits.seconds
        self._steps = 0
        self._total = 0

    def step(self) -> None:
        """Count one unit of control flow."""
        self._steps += 1
        if self._steps > self._limits.steps:
            raise SecurityError(f"it takes more than {self._limits.steps} steps")
        if self._steps % _CLOCK_INTERVAL == 0 and self._monotonic() > self._deadline:
            raise SecurityError(f"it takes more than {self._limits.seconds} seconds")

    def reserve(self, size: int) -> None:
        """Count a value of `size` characters or items, before it is built."""
        if size > self._limits.value_size:
            raise SecurityError(
                f"it builds a value of {size} characters or items; the limit is {self._limits.value_size}"
            )
        self._total += max(size, 0)
        if self._total > self._limits.total_size:
            raise SecurityError(f"it builds more than {self._limits.total_size} characters and items in all")

    def integer(self, bits: int) -> None:
        """Check the size of an integer result."""
        if bits > _INTEGER_BITS:
            raise SecurityError(f"it computes an integer of {bits} bits; the limit is {_INTEGER_BITS}")

    def weigh(self, value: Any) -> int:
        """Characters and items in `value` written out in full.

        A container that occurs twice counts twice (it would be printed and compared twice), but is
        walked once, so a nest of doubled lists is refused quickly.
        """
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, (list, tuple, Mapping)):
            return 1
        weight = self._weigh_container(value, {})
        if weight > self._limits.value_size:
            raise SecurityError(
                f"it uses a value of {weight} nested characters and items; the limit is "
                f"{self._limits.value_size}"
            )
        return weight

    def _weigh_container(self, value: Any, known: dict[int, int]) -> int:
        weight = known.get(id(value))
        if weight is None:
            children = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
            weight = 1
            for child in children:
                if isinstance(child, str):
                    weight += 1 + len(child)
                elif isinstance(child, (list, tuple, Mapping)):
                    weight += self._weigh_container(child, known)
                else:
                    weight += 1
            known[id(value)] = weight
        return weight
