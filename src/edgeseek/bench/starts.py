"""Time from starting a process to the first byte of its answer, with the files cached or not."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edgeseek.errors import RuntimeFailure

PROMPT = "Write a function that returns the sum of a list of numbers, with one example."


def drop_from_cache(folder: Path) -> None:
    """Ask the kernel to forget the cached pages of every file in `folder`."""
    for path in sorted(folder.iterdir()):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def first_byte_s(
    package: Path,
    options: Sequence[str],
    repeat: int,
    *,
    cold: bool,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """Median seconds from exec to the first byte on stdout of `edgeseek run PACKAGE --max-tokens 1`.

    Raises RuntimeFailure with the process's own words if it fails.
    """
    command = [sys.executable, "-m", "edgeseek", "run", str(package), "--prompt", PROMPT]
    command += ["--max-tokens", "1", "--temperature", "0", *options]
    times = []
    for _ in range(repeat):
        if cold:
            drop_from_cache(package)
        begin = clock()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            if process.stdout is None or process.stderr is None:
                raise RuntimeFailure("the started process has no output")
            first = process.stdout.read(1)
            times.append(clock() - begin)
            process.stdout.read()
            words = process.stderr.read().decode(errors="replace")
        if process.returncode != 0 or not first:
            raise RuntimeFailure(f"the started process failed: {words.strip()[-300:]}")
    return statistics.median(times)
