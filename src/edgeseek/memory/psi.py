"""PSI triggers: the kernel wakes us when tasks waited for memory long enough within a window.

`some` counts time in which at least one task waited, `full` time in which all did. A trigger is a
descriptor of the pressure file into which "KIND STALL_US WINDOW_US" was written; it reports POLLPRI at most
once a window, and POLLERR once what it watches is gone (Documentation/accounting/psi.rst). `/proc` wants the
text to end in a newline. Without CAP_SYS_RESOURCE, kernels from 6.4 and 6.1.42 on take windows that are a
multiple of 2 s, older ones none at all.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from edgeseek.memory.pressure import Level

#: (kind, stall in µs, window in µs) of each level: with CAP_SYS_RESOURCE, and without.
FINE: Mapping[Level, tuple[str, int, int]] = MappingProxyType(
    {
        Level.LOW: ("some", 100_000, 5_000_000),
        Level.HIGH: ("some", 1_500_000, 5_000_000),
        Level.CRITICAL: ("full", 1_500_000, 5_000_000),
    }
)
COARSE: Mapping[Level, tuple[str, int, int]] = MappingProxyType(
    {
        Level.LOW: ("some", 300_000, 2_000_000),
        Level.HIGH: ("some", 700_000, 2_000_000),
        Level.CRITICAL: ("full", 700_000, 2_000_000),
    }
)

#: Opens a trigger on a file and returns its descriptor; raises OSError.
Opener = Callable[[Path, str], int]


class PsiTriggers:
    """One trigger for each level on one pressure file. Implements `pressure.Source`."""

    def __init__(self, name: str, descriptors: Mapping[int, Level]) -> None:
        self.name = name
        self._levels = dict(descriptors)

    def descriptors(self) -> Sequence[tuple[int, int]]:
        """See `Source.descriptors`."""
        return [(descriptor, select.POLLPRI | select.POLLERR) for descriptor in self._levels]

    def ready(self, descriptor: int, events: int, /) -> Level:
        """See `Source.ready`; a trigger whose group is gone is closed."""
        level = self._levels.get(descriptor, Level.NONE)
        if events & (select.POLLERR | select.POLLNVAL):
            if self._levels.pop(descriptor, None) is not None:
                os.close(descriptor)
            return Level.NONE
        return level

    def poll(self, _now: float, /) -> Level:
        """See `Source.poll`."""
        return Level.NONE

    def close(self) -> None:
        """See `Source.close`."""
        for descriptor in self._levels:
            os.close(descriptor)
        self._levels = {}


def open_trigger(path: Path, text: str) -> int:
    """The descriptor of a new trigger. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def psi_source(path: Path, name: str, opener: Opener = open_trigger) -> PsiTriggers | None:
    """Triggers on the pressure file `path`: fine ones where allowed, else coarse; None where none are."""
    for thresholds, grain in ((FINE, "5 s"), (COARSE, "2 s")):
        opened: dict[int, Level] = {}
        try:
            for level, (kind, stall, window) in thresholds.items():
                opened[opener(path, f"{kind} {stall} {window}\n")] = level
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            continue
        return PsiTriggers(f"{name}, triggers in windows of {grain}", opened)
    return None
