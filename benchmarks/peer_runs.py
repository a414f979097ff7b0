"""Fresh processes in alternation: one round measures every contender once, medians are taken over rounds."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peer_engines import OURS, Contender
from benchmarks.work import Result

ROOT = Path(__file__).resolve().parent.parent


#: Runs an interpreter with arguments and returns its standard output, as `child` does.
Run = Callable[[str, Sequence[str]], str]


class ChildError(Exception):
    """A measuring process failed; the text says which and how."""


@dataclass
class Samples:
    """All measurements of one contender on one model."""

    family: str
    results: list[Result] = field(default_factory=list)
    warm_s: list[float] = field(default_factory=list)
    cold_s: list[float] = field(default_factory=list)

    def median(self, name: str) -> float | None:
        """Median of a field of the results or of a list of starts; None where the engine has no figure."""
        if name in ("warm_s", "cold_s"):
            values: list[float | None] = list(getattr(self, name))
        else:
            values = [getattr(result, name) for result in self.results]
        known = [value for value in values if value is not None]
        return float(statistics.median(known)) if known else None


@dataclass
class Rounds:
    """What all rounds on one model gave."""

    #: By contender, in the order of a round.
    samples: dict[str, Samples]
    #: Median of the sweeps before each round, bytes/s.
    bandwidth: float
    #: Contenders that could not run, and why.
    failures: dict[str, str]


def child(python: str, arguments: Sequence[str]) -> str:
    """Standard output of a process that must succeed. Raises ChildError."""
    done = subprocess.run([python, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChildError(f"{' '.join(arguments)[:200]} failed:\n{done.stderr[-2000:].strip()}")
    return done.stdout


def seconds_to_first_byte(python: str, arguments: Sequence[str]) -> float:
    """From exec to the first byte on stdout; the process then runs to its end. Raises ChildError."""
    started = time.perf_counter()
    with subprocess.Popen(
        [python, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        output = process.stdout
        if output is None or not os.read(output.fileno(), 1):
            errors = process.communicate()[1][-2000:].decode(errors="replace").strip()
            raise ChildError(f"{' '.join(arguments)[:200]} wrote no answer:\n{errors}")
        elapsed = time.perf_counter() - started
        process.communicate()
    return elapsed


def drop_from_cache(files: Sequence[Path]) -> None:
    """Ask the kernel to forget the pages of these files."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def measure(contender: Contender, *, starts: bool, samples: Samples, run: Run = child) -> None:
    """Add one round of one contender to its samples. Raises ChildError."""
    output = run(contender.python, ["-m", contender.worker, *contender.work.arguments()])
    samples.results.append(Result(**json.loads(output.splitlines()[-1])))
    if starts:
        samples.warm_s.append(seconds_to_first_byte(contender.python, contender.start))
        drop_from_cache(contender.files)
        samples.cold_s.append(seconds_to_first_byte(contender.python, contender.start))


def rounds(engines: Sequence[Contender], count: int, *, starts: bool, run: Run = child) -> Rounds:
    """Alternate the engines `count` times.

    A peer that fails takes no further part, and its reason is kept; edgeseek failing raises ChildError.
    """
    samples = {engine.name: Samples(engine.family) for engine in engines}
    failures: dict[str, str] = {}
    bandwidths = []
    threads = str(engines[0].work.threads)
    for number in range(count):
        bandwidths.append(float(run(sys.executable, ["-m", "benchmarks.roofline", threads])))
        for engine in engines:
            if engine.name in failures:
                continue
            print(f"round {number + 1} of {count}: {engine.name}", file=sys.stderr, flush=True)
            try:
                measure(engine, starts=starts, samples=samples[engine.name], run=run)
            except ChildError as error:
                if engine.name == OURS:
                    raise
                print(f"{engine.name} is left out: {error}", file=sys.stderr, flush=True)
                failures[engine.name] = str(error).splitlines()[-1]
                del samples[engine.name]
    return Rounds(samples, statistics.median(bandwidths), failures)
