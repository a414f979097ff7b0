"""Decoding for minutes: does the speed hold, or does the board throttle?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from edgeseek.bench.work import Workload
from edgeseek.doctor.device import clock_mhz, temperature_c
from edgeseek.settings import Settings

INTERVAL_S = 5.0


@dataclass(frozen=True)
class Sample:
    """One interval, ending `seconds` after the begin; clock and temperature are None where not readable."""

    seconds: float
    tokens_per_s: float
    clock_mhz: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class Sustained:
    """All intervals of one run."""

    samples: tuple[Sample, ...]

    @property
    def peak(self) -> float:
        """The fastest interval, tokens per second."""
        return max(s.tokens_per_s for s in self.samples)

    @property
    def sustained(self) -> float:
        """Median of the last third of the intervals, tokens per second."""
        last = self.samples[-max(1, len(self.samples) // 3) :]
        return statistics.median(s.tokens_per_s for s in last)

    @property
    def share(self) -> float:
        """sustained ÷ peak; well below 1 where the board throttles."""
        return self.sustained / self.peak


def sustain(
    work: Workload,
    context: int,
    minutes: float,
    settings: Settings,
    *,
    tick: Callable[[float], None],
    clock: Callable[[], float] = time.perf_counter,
) -> Sustained:
    """Decode one stream at `context` for `minutes`; `tick` hears the seconds passed after each interval."""
    begin = clock()
    samples: list[Sample] = []
    steps = 4
    while not samples or clock() - begin < 60 * minutes:
        started, tokens, spent = clock(), 0, 0.0
        while spent < min(INTERVAL_S, 60 * minutes):
            work.decode(context, 1, steps, 1)
            tokens += steps
            spent = clock() - started
        samples.append(Sample(clock() - begin, tokens / spent, clock_mhz(settings), temperature_c(settings)))
        tick(clock() - begin)
    return Sustained(tuple(samples))
