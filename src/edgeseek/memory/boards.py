"""Machines that a plan can be made for without being there.

What a board's kernel reports as MemTotal and what a system without a desktop leaves of it; the figures are
typical ones, rounded down: kernels and device trees differ by some tens of megabytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from edgeseek.errors import UsageError
from edgeseek.memory.cpus import usable_cpus
from edgeseek.memory.limits import MemoryLimit, MemoryLimits, memory_available
from edgeseek.settings import Settings

_MIB = 1 << 20
#: The name of the machine that the plan is made on.
THIS = "this"


@dataclass(frozen=True)
class Board:
    """`total` and `available` are bytes of MemTotal and MemAvailable, `threads` the cores worth using."""

    name: str
    title: str
    total: int
    available: int
    threads: int

    @property
    def limits(self) -> MemoryLimits:
        """The board's memory as the one limit there is."""
        return MemoryLimits((MemoryLimit(f"MemAvailable of {self.name}", self.total, self.available),))


BOARDS: Mapping[str, Board] = MappingProxyType(
    {
        board.name: board
        for board in (
            # The four Cortex-A55 would hold the Cortex-A76 up.
            Board("rk3588-8g", "RK3588 with 8 GB", 7920 * _MIB, 7400 * _MIB, 4),
            # JetPack keeps a carve-out, and its services take more than a plain Debian.
            Board("orin-nx-16g", "Jetson Orin NX with 16 GB", 15650 * _MIB, 14600 * _MIB, 8),
            Board("rpi5-8g", "Raspberry Pi 5 with 8 GB", 8060 * _MIB, 7550 * _MIB, 4),
        )
    }
)


def machine_for(device: str, settings: Settings) -> tuple[MemoryLimits, int]:
    """Memory limits and threads of the machine called `device`.

    Raises UsageError for an unknown name, RuntimeFailure where "this" machine cannot be read.
    """
    if device == THIS:
        return memory_available(settings), usable_cpus(settings).threads
    board = BOARDS.get(device)
    if board is None:
        raise UsageError(f"device {device!r} is unknown; give one of {', '.join([*BOARDS, THIS])}")
    return board.limits, board.threads
