"""A memory cgroup of this machine's own kernel, made for one test, of whichever version the machine has.

Everything that eats memory in tests runs inside one; nothing outside is touched.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

#: Joins the group named by the first word, then becomes the rest.
_JOIN = 'echo $$ > "$0" && exec "$@"'


@dataclass(frozen=True)
class LimitedGroup:
    """A group of its own below the top of the visible hierarchy."""

    version: int
    folder: Path

    def limit(self, size: int) -> None:
        """Set the hard limit, in bytes."""
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        (self.folder / name).write_text(str(size))

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a process that is a member from its first instruction on."""
        words = ["/bin/sh", "-c", _JOIN, str(self.folder / "cgroup.procs"), *command]
        return subprocess.Popen(words, text=True, **options)

    @property
    def used(self) -> int:
        """Bytes charged to it at present."""
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int((self.folder / name).read_text())

    @property
    def highest(self) -> int:
        """The most that was ever charged to it."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        return int((self.folder / name).read_text())

    @property
    def oom_kills(self) -> int:
        """Processes that the kernel killed here for want of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return _value(self.folder / name, "oom_kill")

    @property
    def limit_hits(self) -> int:
        """How often the limit was reached, so that something was reclaimed."""
        if self.version == 1:
            return int((self.folder / "memory.failcnt").read_text())
        return _value(self.folder / "memory.events", "max")


@contextmanager
def limited_group() -> Iterator[LimitedGroup]:
    """A fresh group without a limit, removed afterwards; skips the test where none may be made."""
    group = _make()
    try:
        yield group
    finally:
        for _ in range(100):
            try:
                group.folder.rmdir()
                break
            except OSError:  # a member is still ending
                time.sleep(0.05)


def evict(folder: Path) -> None:
    """Drop a folder's files from the page cache, so that whoever reads them next is charged for them."""
    for file in folder.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _make() -> LimitedGroup:
    name = f"edgeseek-test-{os.getpid()}-{time.monotonic_ns()}"
    reasons = []
    for version, top in _hierarchies():
        folder = top / name
        try:
            if version == 2 and "memory" not in (top / "cgroup.subtree_control").read_text().split():
                reasons.append(f"{top} has no memory controller to hand down")
                continue
            folder.mkdir()
        except OSError as error:
            reasons.append(f"{top}: {error.strerror}")
            continue
        return LimitedGroup(version, folder)
    pytest.skip("no memory cgroup can be made here: " + ("; ".join(reasons) or "none is mounted"))


def _hierarchies() -> Iterator[tuple[int, Path]]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        point = Path(before.split(" ")[4])
        if kind == "cgroup2":
            yield 2, point
        elif kind == "cgroup" and "memory" in options.split(" ")[-1].split(","):
            yield 1, point


def _value(file: Path, key: str) -> int:
    for line in file.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0
