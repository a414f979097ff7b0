"""Gives memory back in steps while the machine is short of it, and takes each step back afterwards.

| step              | from level | what is given up                                | undone by            |
|-------------------|------------|-------------------------------------------------|----------------------|
| stop_admitting    | low        | new requests: they are refused with 429         | admitting again      |
| drop_prefix_cache | low        | KV of finished requests                         | use fills it again   |
| release_kv_pages  | low        | pages of free KV blocks (MADV_DONTNEED)         | use fills them again |
| page_out_weights  | high       | idle experts and the embedding (MADV_PAGEOUT)   | use reads them again |
| shrink_slots      | high       | half of the slots: fewer requests run at once   | all slots again      |
| end_newest        | critical   | the newest request, with an error that says why | nothing              |

One step at a time, in this order, the next one when pressure went on for `SETTLE_S` after the last. A step
that gives back what use fills again is repeated while pressure goes on. When there was none for `CALM_S`,
everything is undone in reverse order. Running requests other than the newest are never touched. The engine
implements `Relief`; this module knows nothing else of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from edgeseek.errors import EdgeseekError
from edgeseek.memory.pressure import HOLD_S, Level, PressureMonitor

#: Seconds that a step is given to show an effect before the next.
SETTLE_S = 1.0
#: Seconds without pressure after which steps are undone.
CALM_S = 10.0
#: Longest wait for an event, so that levels that decay and sources that are polled are noticed.
TICK_S = 0.5

_log = logging.getLogger(__name__)


class Relief(Protocol):
    """What an engine can give up; each step says what it did, "" where that was nothing.

    Called from the guard's thread only; raises nothing but EdgeseekError.
    """

    def stop_admitting(self, reason: str, /) -> str:
        """Refuse new requests with `reason`; those that wait already stay. Says what was done."""
        ...

    def admit_again(self) -> None:
        """Undo `stop_admitting`."""
        ...

    def drop_prefix_cache(self) -> str:
        """Free the blocks of finished requests."""
        ...

    def release_kv_pages(self) -> str:
        """Give the pages of free KV blocks back to the system."""
        ...

    def page_out_weights(self) -> str:
        """Drop weights that the running requests hardly use from memory."""
        ...

    def shrink_slots(self) -> str:
        """Let fewer requests run at once; those that run go on."""
        ...

    def restore_slots(self) -> None:
        """Undo `shrink_slots`."""
        ...

    def end_newest(self, reason: str, /) -> str:
        """End the request that came last with an error that says `reason`; "" where none runs or waits."""
        ...


@dataclass(frozen=True)
class Step:
    """One step of the table above. `undo` is None where use undoes it."""

    name: str
    level: Level
    take: Callable[[Relief], str]
    undo: Callable[[Relief], None] | None = None
    #: Seconds after which it is taken again while pressure goes on; None for never.
    again_s: float | None = None


_REFUSED = "the machine is short of memory and takes no new requests; try again later"
_ENDED = (
    "the request was ended because the machine ran out of memory while it was the newest; try again later, "
    "or serve with a smaller --context or fewer --slots"
)

STEPS: tuple[Step, ...] = (
    Step("stop_admitting", Level.LOW, lambda r: r.stop_admitting(_REFUSED), lambda r: r.admit_again()),
    Step("drop_prefix_cache", Level.LOW, lambda r: r.drop_prefix_cache(), again_s=SETTLE_S),
    Step("release_kv_pages", Level.LOW, lambda r: r.release_kv_pages(), again_s=SETTLE_S),
    Step("page_out_weights", Level.HIGH, lambda r: r.page_out_weights(), again_s=SETTLE_S),
    Step("shrink_slots", Level.HIGH, lambda r: r.shrink_slots(), lambda r: r.restore_slots()),
    Step("end_newest", Level.CRITICAL, lambda r: r.end_newest(_ENDED), again_s=2 * HOLD_S),
)


@dataclass(frozen=True)
class GuardEvent:
    """Something the guard did: a step taken, or undone. `at` is by the guard's clock, in seconds."""

    at: float
    level: Level
    step: str
    undone: bool
    detail: str


class MemoryGuard:
    """Turns levels into steps. `advance` does one round; `start` runs rounds on a thread until `close`.

    `report` hears of every step, from the guard's thread. `taken` counts steps by name.
    """

    def __init__(
        self,
        relief: Relief,
        monitor: PressureMonitor,
        *,
        clock: Callable[[], float] = time.monotonic,
        settle_s: float = SETTLE_S,
        calm_s: float = CALM_S,
        report: Callable[[GuardEvent], None] | None = None,
    ) -> None:
        self._relief = relief
        self._monitor = monitor
        self._clock = clock
        self._settle_s, self._calm_s = settle_s, calm_s
        self._report = report
        self._taken: Counter[str] = Counter()
        #: Steps in force: the first so many of STEPS.
        self._depth = 0
        self._last_step = float("-inf")
        self._taken_at: dict[str, float] = {}
        self._last_pressure = float("-inf")
        self._level = Level.NONE
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def watched(self) -> tuple[str, ...]:
        """What reports pressure."""
        return self._monitor.names

    @property
    def taken(self) -> Mapping[str, int]:
        """How often each step was taken since the start."""
        return dict(self._taken)

    @property
    def in_force(self) -> tuple[str, ...]:
        """Names of the steps that are not undone yet."""
        return tuple(step.name for step in STEPS[: self._depth])

    @property
    def level(self) -> Level:
        """The level of the last round."""
        return self._level

    def advance(self, level: Level) -> None:
        """One round at `level`: the next step that is due, or the undoing of all."""
        now = self._clock()
        self._level = level
        if level > Level.NONE:
            self._last_pressure = now
            if now - self._last_step >= self._settle_s:
                self._next(level, now)
        elif self._depth and now - self._last_pressure >= self._calm_s:
            self._undo_all(now)

    def start(self) -> None:
        """Watch on a thread of its own, until `close`."""
        self._thread = threading.Thread(target=self._run, name="edgeseek-memory-guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, undo what is in force and close the monitor; safe to call twice."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._undo_all(self._clock())
        self._monitor.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            level = self._monitor.wait(TICK_S)
            try:
                self.advance(level)
            except EdgeseekError:
                # An engine that is closing refuses; the guard must not end with it.
                _log.exception("a step of the memory guard failed")

    def _next(self, level: Level, now: float) -> None:
        due = STEPS[self._depth] if self._depth < len(STEPS) else None
        if due is not None and due.level <= level:
            self._depth += 1
            self._take(due, level, now)
            return
        # Nothing new is due: what use has filled again meanwhile is given back again.
        for step in STEPS[: self._depth]:
            since = now - self._taken_at.get(step.name, now)
            if step.again_s is not None and step.level <= level and since >= step.again_s:
                self._take(step, level, now)

    def _take(self, step: Step, level: Level, now: float) -> None:
        self._last_step = self._taken_at[step.name] = now
        detail = step.take(self._relief)
        if not detail:
            return
        self._taken[step.name] += 1
        _log.warning("memory pressure is %s: %s: %s", level.name.lower(), step.name, detail)
        self._tell(GuardEvent(now, level, step.name, False, detail))

    def _undo_all(self, now: float) -> None:
        while self._depth:
            step = STEPS[self._depth - 1]
            self._depth -= 1
            if step.undo is not None:
                with suppress(EdgeseekError):  # an engine that was closed has nothing to undo
                    step.undo(self._relief)
                _log.warning("memory pressure is over: %s undone", step.name)
                self._tell(GuardEvent(now, Level.NONE, step.name, True, "undone"))

    def _tell(self, event: GuardEvent) -> None:
        if self._report is not None:
            self._report(event)
