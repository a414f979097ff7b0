"""How many bytes this process may still use, and which limit says so.

Counts MemAvailable, the memory limits of every cgroup above this process (version 1 or 2) and
RLIMIT_AS. Reads files below `settings.proc_root` and `settings.sys_root` only. Knows nothing of models;
`planner` decides what to do with the figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgeseek.errors import RuntimeFailure
from edgeseek.memory.cgroup import Group, groups_of, read_text
from edgeseek.settings import Settings

#: Version 1 has no word for "no limit": it shows LONG_MAX rounded down to a page, of 64 KiB at most.
V1_UNLIMITED = 2**63 - 65536


@dataclass(frozen=True)
class MemoryLimit:
    """One limit. `available` is what may still be used under it, of `capacity` in all; both in bytes."""

    name: str
    capacity: int
    available: int
    #: Whether it is the whole machine's memory, which other programs live on too.
    machine: bool = True


@dataclass(frozen=True)
class MemoryLimits:
    """All limits that were found; the least available one counts. Never empty."""

    limits: tuple[MemoryLimit, ...]
    #: Private bytes that this process holds already, which every limit counts as used.
    held: int = 0
    #: Bytes of files that it has mapped already: the interpreter and its libraries.
    mapped: int = 0

    @property
    def deciding(self) -> MemoryLimit:
        """The limit that leaves the fewest bytes; the first such one, the machine before cgroups."""
        return min(self.limits, key=lambda limit: limit.available)

    @property
    def available(self) -> int:
        """Bytes that may still be used under every limit."""
        return self.deciding.available

    @property
    def decided_by(self) -> str:
        """Name of the limit that decides, for messages: "cgroup memory.max of /app"."""
        return self.deciding.name


def memory_available(settings: Settings) -> MemoryLimits:
    """Read every memory limit of this process. Raises RuntimeFailure where /proc/meminfo is unreadable."""
    status = kib_table(read_text(settings.proc_root / "self/status") or "")
    found = (_machine(settings), *_cgroups(settings), *_address_space(settings))
    return MemoryLimits(found, held=status.get("RssAnon", 0), mapped=status.get("RssFile", 0))


def _machine(settings: Settings) -> MemoryLimit:
    path = settings.proc_root / "meminfo"
    sizes = kib_table(read_text(path) or "")
    total = sizes.get("MemTotal")
    # Kernels before 3.14 have no MemAvailable; free memory and page cache are the usual estimate.
    estimate = sizes.get("MemFree", 0) + sizes.get("Buffers", 0) + sizes.get("Cached", 0)
    if total is None:
        raise RuntimeFailure(f"{path} does not say how much memory there is; is /proc mounted?")
    return MemoryLimit("MemAvailable", total, sizes.get("MemAvailable", estimate))


def _cgroups(settings: Settings) -> Iterator[MemoryLimit]:
    for index, group in enumerate(groups_of("memory", settings)):
        if group.version == 2:
            yield from _version_2(group)
        # Without use_hierarchy a version 1 group does not count what its children use.
        elif index == 0 or group.read("memory.use_hierarchy") != "0":
            yield from _version_1(group)


def _version_2(group: Group) -> Iterator[MemoryLimit]:
    current = _number(group.read("memory.current"))
    reclaimable = _stat(group, "inactive_file")
    for file in ("memory.max", "memory.high"):
        # "max", the word for no limit, is not a number.
        capacity = _number(group.read(file))
        if capacity is not None:
            yield _limit(f"cgroup {file} of {group.name}", capacity, current or 0, reclaimable)


def _version_1(group: Group) -> Iterator[MemoryLimit]:
    capacity = _number(group.read("memory.limit_in_bytes"))
    if capacity is None or capacity >= V1_UNLIMITED:
        return
    current = _number(group.read("memory.usage_in_bytes")) or 0
    # total_ counts the children too, as usage_in_bytes does.
    reclaimable = _stat(group, "total_inactive_file")
    yield _limit(f"cgroup memory.limit_in_bytes of {group.name}", capacity, current, reclaimable)


def _limit(name: str, capacity: int, current: int, reclaimable: int) -> MemoryLimit:
    used = max(0, current - reclaimable)
    return MemoryLimit(name, capacity, max(0, capacity - used), machine=False)


def _address_space(settings: Settings) -> Iterator[MemoryLimit]:
    for line in (read_text(settings.proc_root / "self/limits") or "").splitlines():
        if line.startswith("Max address space"):
            soft = _number(line.removeprefix("Max address space").split()[0])
            if soft is not None:
                status = kib_table(read_text(settings.proc_root / "self/status") or "")
                used = status.get("VmSize", 0)
                yield MemoryLimit("RLIMIT_AS (ulimit -v)", soft, max(0, soft - used), machine=False)


def peak_rss(settings: Settings) -> int | None:
    """This process's peak resident bytes (VmHWM), or None where the kernel does not tell."""
    return kib_table(read_text(settings.proc_root / "self/status") or "").get("VmHWM")


def kib_table(text: str) -> dict[str, int]:
    """`Name:   123 kB` lines as bytes; other lines are left out."""
    table = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdecimal():
            table[name] = int(words[0]) * 1024
    return table


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _stat(group: Group, key: str) -> int:
    for line in (group.read("memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return _number(value) or 0
    return 0
