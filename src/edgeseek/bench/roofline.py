"""The machine's limits, with as many threads as the engine uses.

`bandwidth` bounds decoding: a read-only sweep. `int8_peak` bounds prefill: independent chains of the dot
products that the matrix kernels are made of, see native/kernels/peak.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgeseek import _core

SWEEP_BYTES = 1 << 30
_SMALLEST = 64 << 20
_REPEATS = 5


@dataclass(frozen=True)
class Roofline:
    """Best of several sweeps in bytes per second, and int8 multiply-accumulates per second."""

    bandwidth: float
    #: The same with every load one byte after a 64-byte boundary.
    unaligned_bandwidth: float
    int8_peak: float
    sweep_bytes: int

    def best_with(self, other: Roofline) -> Roofline:
        """The larger of each figure: what disturbed one measurement did not disturb the other."""
        return Roofline(
            max(self.bandwidth, other.bandwidth),
            max(self.unaligned_bandwidth, other.unaligned_bandwidth),
            max(self.int8_peak, other.int8_peak),
            max(self.sweep_bytes, other.sweep_bytes),
        )


def measure(threads: int, available: int, isa: str | None = None, seconds: float = 0.3) -> Roofline:
    """Measure with `threads` threads. A sweep takes 1 GiB, or half of `available` bytes if that is less."""
    size = max(_SMALLEST, min(SWEEP_BYTES, available // 2))
    pool = _core.ThreadPool(threads)
    memory = _core.SweepMemory(size)
    aligned = max(memory.sweep(pool) for _ in range(_REPEATS))
    unaligned = max(memory.sweep(pool, 1) for _ in range(_REPEATS))
    del memory
    peak = max(_core.int8_peak(pool, isa, seconds) for _ in range(3))
    return Roofline(aligned, unaligned, peak, size)
