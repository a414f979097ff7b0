"""Memory bandwidth as the engine could use it: a read-only sweep over 1 GiB, in bytes per second.

python -m benchmarks.roofline THREADS
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

SWEEP_BYTES = 1 << 30
REPEATS = 5


def _read(part: npt.NDArray[np.int8]) -> None:
    # Of numpy's reductions this one does the least work per byte; it releases the GIL.
    part.max()


def bandwidth(threads: int) -> float:
    """The best of several sweeps by `threads` threads, each over its own part."""
    parts = np.array_split(np.ones(SWEEP_BYTES, dtype=np.int8), threads)
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPEATS):
            started = time.perf_counter()
            list(pool.map(_read, parts))
            best = min(best, time.perf_counter() - started)
    return SWEEP_BYTES / best


if __name__ == "__main__":
    print(bandwidth(int(sys.argv[1])))
