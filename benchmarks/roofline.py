"""Memory bandwidth as the engine could use it: a read-only sweep over 1 GiB, in bytes per second.

python -m benchmarks.roofline THREADS
"""

from __future__ import annotations

import sys

from edgeseek.bench.roofline import SWEEP_BYTES, measure


def bandwidth(threads: int) -> float:
    """The best of several sweeps by `threads` threads, each over its own part."""
    return measure(threads, 2 * SWEEP_BYTES, seconds=0.001).bandwidth


if __name__ == "__main__":
    print(bandwidth(int(sys.argv[1])))
