"""`memory.pressure_level` of a version 1 cgroup: the kernel writes to an eventfd while it reclaims there.

"low": it reclaims; "medium": it swaps or drops cache that is in use; "critical": it is about to run out.
Each is registered by writing "EVENTFD PRESSURE_LEVEL_FD LEVEL" to `cgroup.event_control`
(Documentation/admin-guide/cgroup-v1/memory.rst, section 11).
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from edgeseek.memory.cgroup import Group
from edgeseek.memory.pressure import Level

LEVELS: Mapping[str, Level] = MappingProxyType(
    {"low": Level.LOW, "medium": Level.HIGH, "critical": Level.CRITICAL}
)


class V1Events:
    """An eventfd for each level of one group. Implements `pressure.Source`."""

    def __init__(self, name: str, events: Mapping[int, Level], level_file: int) -> None:
        self.name = name
        self._levels = dict(events)
        self._level_file = level_file

    def descriptors(self) -> Sequence[tuple[int, int]]:
        """See `Source.descriptors`."""
        return [(descriptor, select.POLLIN) for descriptor in self._levels]

    def ready(self, descriptor: int, _events: int, /) -> Level:
        """See `Source.ready`; takes the eventfd's count. A removed group reports once, like pressure."""
        try:
            os.eventfd_read(descriptor)
        except BlockingIOError:
            return Level.NONE
        return self._levels[descriptor]

    def poll(self, _now: float, /) -> Level:
        """See `Source.poll`."""
        return Level.NONE

    def close(self) -> None:
        """See `Source.close`."""
        for descriptor in self._levels:
            os.close(descriptor)
        if self._levels:
            os.close(self._level_file)
        self._levels = {}


def v1_source(group: Group) -> V1Events | None:
    """Events of `group`, None where it has none or we may not register."""
    events: dict[int, Level] = {}
    level_file = control = -1
    try:
        level_file = os.open(group.folder / "memory.pressure_level", os.O_RDONLY | os.O_CLOEXEC)
        control = os.open(group.folder / "cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC)
        for word, level in LEVELS.items():
            descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            events[descriptor] = level
            os.write(control, f"{descriptor} {level_file} {word}".encode())
    except OSError:
        for descriptor in (*events, level_file):
            if descriptor >= 0:
                os.close(descriptor)
        return None
    finally:
        if control >= 0:
            os.close(control)
    return V1Events(f"pressure_level of {group.name}", events, level_file)
