"""How many compute threads are worth starting, on which CPUs, and which limit says so.

A thread that shares a core, waits for a quota or runs on a little core holds the others up at every
layer's end. So: the CPUs of the affinity mask that are online, one per physical core, of the big
cluster only, and no more than the cgroup's CPU quota. Reads files below `settings.proc_root` and
`settings.sys_root` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeseek.memory.cgroup import Group, groups_of, read_text
from edgeseek.settings import Settings

#: Cores with at least this share of the largest capacity count as big: the two Cortex-A76 pairs of an
#: RK3588 may differ by a few percent, a Cortex-A55 beside them has about half.
BIG_SHARE = 0.75


@dataclass(frozen=True)
class CpuLimits:
    """`threads` is what to start; `cpus` are the CPU numbers worth running on, in ascending order."""

    threads: int
    cpus: tuple[int, ...]
    decided_by: str


def usable_cpus(settings: Settings) -> CpuLimits:
    """Count the threads that every limit allows, at least 1; a forced `settings.threads` wins."""
    allowed, decided_by = _allowed(settings)
    cores = _one_per_core(allowed, settings)
    if len(cores) < len(allowed):
        decided_by = "physical cores"
    big = _big_cluster(cores, settings)
    if len(big) < len(cores):
        decided_by = "big cluster (cpu_capacity)"
    threads = len(big)
    for group in groups_of("cpu", settings):
        quota = _quota(group)
        if quota is not None and quota[1] < threads:
            decided_by, threads = quota
    if settings.threads is not None:
        decided_by, threads = "EDGESEEK_THREADS", settings.threads
    return CpuLimits(threads, big, decided_by)


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """CPU numbers of a kernel list such as `0-3,8,10-11`; malformed parts are left out."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdecimal() and (not dash or last.isdecimal()):
            cpus.update(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(cpus))


def _allowed(settings: Settings) -> tuple[tuple[int, ...], str]:
    online = parse_cpu_list(read_text(_cpu_folder(settings) / "online") or "")
    mask = _affinity(settings)
    if not mask:
        return (online or (0,)), "online CPUs"
    allowed = tuple(cpu for cpu in mask if cpu in online) if online else mask
    return (allowed or mask), "online CPUs" if allowed == online else "affinity mask"


def _affinity(settings: Settings) -> tuple[int, ...]:
    for line in (read_text(settings.proc_root / "self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return parse_cpu_list(value)
    return ()


def _one_per_core(cpus: tuple[int, ...], settings: Settings) -> tuple[int, ...]:
    cores: dict[tuple[int, ...], int] = {}
    for cpu in cpus:
        siblings = read_text(_cpu_folder(settings) / f"cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(parse_cpu_list(siblings or "") or (cpu,), cpu)
    return tuple(sorted(cores.values()))


def _big_cluster(cpus: tuple[int, ...], settings: Settings) -> tuple[int, ...]:
    capacities: dict[int, int] = {}
    for cpu in cpus:
        text = read_text(_cpu_folder(settings) / f"cpu{cpu}/cpu_capacity") or ""
        if not text.isdecimal():
            return cpus
        capacities[cpu] = int(text)
    largest = max(capacities.values())
    return tuple(cpu for cpu in cpus if capacities[cpu] >= BIG_SHARE * largest)


def _quota(group: Group) -> tuple[str, int] | None:
    """Name and whole CPUs of a group's bandwidth limit, at least 1; None where it has none."""
    if group.version == 2:
        file, numbers = "cpu.max", (group.read("cpu.max") or "").split()
    else:
        file = "cpu.cfs_quota_us"
        numbers = [group.read(file) or "", group.read("cpu.cfs_period_us") or ""]
    # No limit is "max" in version 2 and -1 in version 1: neither is a decimal number.
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers) or int(numbers[1]) == 0:
        return None
    return f"cgroup {file} of {group.name}", max(1, int(numbers[0]) // int(numbers[1]))


def _cpu_folder(settings: Settings) -> Path:
    return settings.sys_root / "devices/system/cpu"
