"""Pressure found by reading: for kernels that refuse triggers or have no PSI.

A PSI file's `total=` grows by the microseconds that tasks waited, so two readings give the exact share of
the time between them. Without PSI, the counters of `/proc/vmstat` tell whether tasks had to reclaim memory
themselves (`allocstall_*`), and MemAvailable how much is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from edgeseek.memory.cgroup import read_text
from edgeseek.memory.limits import kib_table
from edgeseek.memory.pressure import Level

_TOTAL = re.compile(r"^(some|full) .*\btotal=(\d+)$", re.MULTILINE)
#: Shares of the time waited: those of the triggers in `psi.COARSE`.
_LOW_SOME, _HIGH_SOME, _CRITICAL_FULL = 0.15, 0.35, 0.35
#: Two readings closer than this say little.
_LEAST_INTERVAL_S = 0.5
#: Shares of the machine's memory that are left.
_HIGH_LEFT, _CRITICAL_LEFT = 0.05, 0.02


class _Polled:
    """What is read and never wakes anybody up."""

    name = ""

    def descriptors(self) -> Sequence[tuple[int, int]]:
        """See `Source.descriptors`."""
        return ()

    def ready(self, _descriptor: int, _events: int, /) -> Level:
        """See `Source.ready`."""
        return Level.NONE

    def close(self) -> None:
        """See `Source.close`."""


class PsiTotals(_Polled):
    """The growth of a PSI file's totals. Implements `pressure.Source`."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = f"{name}, polled"
        self._path = path
        self._last: tuple[float, dict[str, int]] | None = None
        self._level = Level.NONE

    @classmethod
    def of(cls, path: Path, name: str) -> PsiTotals | None:
        """Of a file that is PSI; None where it is not there (a kernel booted with psi=0 shows it too)."""
        return cls(path, name) if _totals(path) else None

    def poll(self, now: float, /) -> Level:
        """See `Source.poll`."""
        totals = _totals(self._path)
        if self._last is None:
            self._last = now, totals
            return Level.NONE
        before, earlier = self._last
        if now - before < _LEAST_INTERVAL_S:
            return self._level
        microseconds = (now - before) * 1e6
        share = {kind: (total - earlier.get(kind, total)) / microseconds for kind, total in totals.items()}
        self._last = now, totals
        some, full = share.get("some", 0.0), share.get("full", 0.0)
        self._level = (
            Level.CRITICAL
            if full >= _CRITICAL_FULL
            else Level.HIGH
            if some >= _HIGH_SOME
            else Level.LOW
            if some >= _LOW_SOME
            else Level.NONE
        )
        return self._level


class ReclaimCounters(_Polled):
    """Direct reclaim and what is left of the machine's memory. Implements `pressure.Source`."""

    name = "/proc/vmstat and MemAvailable, polled"

    def __init__(self, proc_root: Path) -> None:
        self._root = proc_root
        self._stalls: int | None = None

    def poll(self, _now: float, /) -> Level:
        """See `Source.poll`."""
        sizes = kib_table(read_text(self._root / "meminfo") or "")
        total, left = sizes.get("MemTotal", 0), sizes.get("MemAvailable")
        level = Level.NONE
        stalls = self._allocation_stalls()
        if self._stalls is not None and stalls > self._stalls:
            level = Level.LOW
        self._stalls = stalls
        if left is not None and left < _CRITICAL_LEFT * total:
            return Level.CRITICAL
        if left is not None and left < _HIGH_LEFT * total:
            return Level.HIGH
        return level

    def _allocation_stalls(self) -> int:
        lines = (line.split() for line in (read_text(self._root / "vmstat") or "").splitlines())
        return sum(int(words[1]) for words in lines if len(words) == 2 and words[0].startswith("allocstall"))


def _totals(path: Path) -> dict[str, int]:
    return {kind: int(total) for kind, total in _TOTAL.findall(read_text(path) or "")}
