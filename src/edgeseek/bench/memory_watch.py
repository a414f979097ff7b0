"""Watches the machine's memory while something runs, and reads this process's own peak."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType

from edgeseek.memory.cgroup import read_text
from edgeseek.memory.limits import kib_table
from edgeseek.settings import Settings

#: Below this much available memory a board of 8 GB begins to drop the pages of the weights.
LOW_BYTES = 800 * 10**6


class MemoryWatch:
    """Samples MemAvailable in a thread; `minimum` is the least it saw, in bytes. Use it with `with`."""

    def __init__(self, settings: Settings, interval_s: float = 0.1) -> None:
        self._settings = settings
        self._interval = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgeseek-memory-watch", daemon=True)
        self.minimum: int | None = None

    def __enter__(self) -> MemoryWatch:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._sample()

    def _sample(self) -> None:
        table = kib_table(read_text(self._settings.proc_root / "meminfo") or "")
        now = table.get("MemAvailable")
        if now is not None:
            self.minimum = now if self.minimum is None else min(self.minimum, now)


@dataclass(frozen=True)
class ProcessMemory:
    """Bytes of this process: the peak, and what is resident now, its own and from files."""

    peak: int
    anonymous: int
    file: int


def process_memory(settings: Settings) -> ProcessMemory:
    """VmHWM, RssAnon and RssFile; zeros where the kernel does not tell."""
    table = kib_table(read_text(settings.proc_root / "self/status") or "")
    return ProcessMemory(table.get("VmHWM", 0), table.get("RssAnon", 0), table.get("RssFile", 0))


def reset_peak(settings: Settings) -> None:
    """Make VmHWM count from now on; without permission it goes on as it was."""
    try:
        (settings.proc_root / "self/clear_refs").write_text("5")
    except OSError:
        return
