"""How hard the kernel is looking for memory right now: none, low, high or critical.

Several sources are watched at once and the highest level counts, since each knows something else:

| source   | file                                                      | how                                |
|----------|-----------------------------------------------------------|------------------------------------|
| PSI      | the v2 group's `memory.pressure`, `/proc/pressure/memory` | triggers, POLLPRI (`psi.py`)       |
| v1 group | `memory.pressure_level`                                   | eventfd (`v1_pressure.py`)         |
| polling  | the same PSI files' totals, else `/proc/vmstat`           | read at every `wait` (`polled.py`) |

A trigger only says that a level was reached, so a level holds for `HOLD_S` after its last report. Polling
stands in for every PSI file whose triggers the kernel refuses (5.10 asks for CAP_SYS_RESOURCE) and, where
there is neither PSI nor a v1 group, for all. Knows nothing of what is done about it.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from edgeseek.memory.cgroup import groups_of, read_text, unified_groups
from edgeseek.settings import Settings

#: Seconds that a level holds after it was last reported: two of a trigger's windows.
HOLD_S = 4.0


class Level(IntEnum):
    """How much the machine, or this process's group, is short of memory."""

    NONE = 0
    #: The kernel reclaims, mostly page cache.
    LOW = 1
    #: Tasks wait for memory a good part of the time.
    HIGH = 2
    #: Little else is done than looking for memory; the OOM killer is near.
    CRITICAL = 3


class Source(Protocol):
    """One thing that reports pressure."""

    @property
    def name(self) -> str:
        """What is watched and how, for the log."""
        ...

    def descriptors(self) -> Sequence[tuple[int, int]]:
        """(file descriptor, poll events) that wake the monitor up; none for what is only polled."""
        ...

    def ready(self, descriptor: int, events: int, /) -> Level:
        """The level that an event on one of the descriptors reports."""
        ...

    def poll(self, now: float, /) -> Level:
        """The level that reading reports; NONE where there are only events."""
        ...

    def close(self) -> None:
        """Let go of the descriptors."""
        ...


#: As select.poll().poll: (descriptor, events) pairs and a timeout in seconds to what is ready.
Waiter = Callable[[Sequence[tuple[int, int]], float], Sequence[tuple[int, int]]]


class PressureMonitor:
    """The highest level of some sources. `wait` belongs to one thread; `close` may come from another."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        clock: Callable[[], float] = time.monotonic,
        waiter: Waiter | None = None,
        hold_s: float = HOLD_S,
    ) -> None:
        self._sources = list(sources)
        self._clock = clock
        self._waiter = waiter or wait_for_events
        self._hold_s = hold_s
        #: When each level was last reported.
        self._reported = dict.fromkeys(Level, float("-inf"))

    @property
    def names(self) -> tuple[str, ...]:
        """What is watched, for the log; empty where nothing can be."""
        return tuple(source.name for source in self._sources)

    def wait(self, timeout_s: float) -> Level:
        """Wait for an event or the time to pass; the level then."""
        owners = {
            descriptor: (source, events)
            for source in self._sources
            for descriptor, events in source.descriptors()
        }
        wanted = [(descriptor, events) for descriptor, (_, events) in owners.items()]
        found = [
            owners[descriptor][0].ready(descriptor, events)
            for descriptor, events in self._waiter(wanted, timeout_s)
        ]
        now = self._clock()
        found += [source.poll(now) for source in self._sources]
        for level in found:
            self._reported[level] = now
        return self.level

    @property
    def level(self) -> Level:
        """The highest level that still holds."""
        now = self._clock()
        held = [level for level, at in self._reported.items() if now - at < self._hold_s]
        return max(held, default=Level.NONE)

    def close(self) -> None:
        """Stop watching; safe to call twice."""
        for source in self._sources:
            source.close()
        self._sources = []

    def __enter__(self) -> PressureMonitor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def watch_pressure(settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> PressureMonitor:
    """A monitor of every source that this machine has. Always works; `names` says what it found."""
    from edgeseek.memory.polled import PsiTotals, ReclaimCounters
    from edgeseek.memory.psi import psi_source
    from edgeseek.memory.v1_pressure import v1_source

    sources: list[Source] = []
    with ExitStack() as undo:
        for path, name in _psi_files(settings):
            found = psi_source(path, name) or PsiTotals.of(path, name)
            if found is not None:
                sources.append(found)
                undo.callback(found.close)
        memory = groups_of("memory", settings)
        if memory and memory[0].version == 1:
            eventful = v1_source(memory[0])
            if eventful is not None:
                sources.append(eventful)
                undo.callback(eventful.close)
        if not sources:
            sources.append(ReclaimCounters(settings.proc_root))
        undo.pop_all()
    return PressureMonitor(sources, clock=clock)


def _psi_files(settings: Settings) -> list[tuple[Path, str]]:
    """PSI files of memory: of this process's own v2 group, wherever its controllers live; of the machine."""
    files = []
    groups = unified_groups(settings)
    # The root group's figures are the machine's.
    if groups and groups[0].name != "/":
        files.append((groups[0].folder / "memory.pressure", f"PSI of {groups[0].name}"))
    files.append((settings.proc_root / "pressure/memory", "PSI of the machine"))
    return [(path, name) for path, name in files if read_text(path)]


def wait_for_events(wanted: Sequence[tuple[int, int]], timeout_s: float) -> Sequence[tuple[int, int]]:
    """`select.poll` over (descriptor, events); a bare sleep where there is none."""
    if not wanted:
        time.sleep(timeout_s)
        return []
    poller = select.poll()
    for descriptor, events in wanted:
        poller.register(descriptor, events)
    with suppress(InterruptedError):
        return poller.poll(timeout_s * 1000)
    return []
