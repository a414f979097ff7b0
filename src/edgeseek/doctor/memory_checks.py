"""Checks of memory: what is there, which limit decides, pages, swap, locking."""

from __future__ import annotations

import re
from collections.abc import Iterator

from edgeseek.doctor import memory_kernel_checks
from edgeseek.doctor.finding import Finding, amount
from edgeseek.doctor.probes import Probes
from edgeseek.memory.cgroup import read_text
from edgeseek.memory.limits import MemoryLimit, kib_table, memory_available
from edgeseek.memory.sizes import reserve_of
from edgeseek.settings import Settings

#: Weights, buffers and interpreter of the smallest model in the catalogue.
_SMALLEST_MODEL = 200_000_000
#: Of the bytes that a model may take, those that are left for weights: the rest is KV cache and buffers.
_WEIGHT_SHARE = 0.8
#: Bits of a weight in scheme q4.
_BITS = 4.5
_THP = "kernel/mm/transparent_hugepage"


def check(probes: Probes) -> Iterator[Finding]:
    """All findings about memory. Raises RuntimeFailure where /proc/meminfo is unreadable."""
    settings = probes.settings
    limits = memory_available(settings)
    room = min(max(0, one.available - reserve_of(one)) for one in limits.limits)
    yield _machine(limits.limits[0], room)
    deciding = min(limits.limits, key=lambda one: one.available - reserve_of(one))
    for limit in limits.limits[1:]:
        yield _limit(limit, decides=limit is deciding)
    yield from _controller(settings)
    yield from memory_kernel_checks.pressure(settings)
    yield from memory_kernel_checks.contiguous(settings)
    yield from memory_kernel_checks.shared_with_devices(settings)
    yield _pages(probes.page_size)
    yield _huge_pages(settings)
    yield from _reserved_pages(settings)
    yield from _swap(settings)
    yield from _locked(settings)


def _machine(limit: MemoryLimit, room: int) -> Finding:
    found = f"{amount(limit.capacity)}, {amount(limit.available)} available"
    if room < _SMALLEST_MODEL:
        meaning = f"{amount(room)} are left for a model under all limits: even smollm2-135m does not fit"
        return Finding("memory", found, meaning, "problem", "end other programs, or raise the limits below")
    billions = room * _WEIGHT_SHARE * 8 / _BITS / 1e9
    meaning = f"{amount(room)} for a model under all limits: up to about {billions:.1f} billion weights at q4"
    if limit.available < limit.capacity // 3:
        return Finding("memory", found, meaning, "note", "end other programs to have more of it")
    return Finding("memory", found, meaning)


def _limit(limit: MemoryLimit, *, decides: bool) -> Finding:
    found = f"{amount(limit.capacity)}, {amount(limit.available)} left"
    if not decides:
        return Finding(limit.name, found, "leaves more than another limit does")
    if "RLIMIT_AS" in limit.name:
        meaning = "this limit decides, and mapped weights count against it"
        return Finding(limit.name, found, meaning, "note", "ulimit -v unlimited")
    what = "slows the process down above it" if "memory.high" in limit.name else "kills the process above it"
    meaning = f"this limit decides what fits; the kernel {what}"
    remedy = "raise MemoryMax= and MemoryHigh= of the unit, or --memory of the container"
    return Finding(limit.name, found, meaning, "note", remedy)


def _controller(settings: Settings) -> Iterator[Finding]:
    # Raspberry Pi's firmware adds cgroup_disable=memory to the line; a later cgroup_enable=memory wins.
    words = (read_text(settings.proc_root / "cmdline") or "").split()
    last = next((word for word in reversed(words) if re.fullmatch(r"cgroup_(?:en|dis)able=memory", word)), "")
    rows = map(str.split, (read_text(settings.proc_root / "cgroups") or "").splitlines())
    off = any(len(row) == 4 and row[0] == "memory" and row[3] == "0" for row in rows)
    if off or last == "cgroup_disable=memory":
        yield Finding(
            "cgroup memory",
            "switched off at boot",
            "memory limits of services and containers have no effect",
            "note",
            "add cgroup_enable=memory to the kernel's command line (/boot/firmware/cmdline.txt on a Pi)",
        )


def _pages(size: int) -> Finding:
    found = amount(size)
    if size == 16384:
        meaning = "packages are aligned for it: weights are mapped and used in place"
        # The Raspberry Pi 5's default kernel.
        remedy = (
            "none needed here; kernel=kernel8.img in /boot/firmware/config.txt gives other programs 4 KiB"
        )
        return Finding("page size", found, meaning, remedy=remedy)
    if size < 16384:
        return Finding(
            "page size", found, "packages are aligned for it: weights are mapped and used in place"
        )
    meaning = "larger than the 16 KiB that packages align for: neighbouring weights share pages, nothing else"
    return Finding("page size", found, meaning)


def _huge_pages(settings: Settings) -> Finding:
    text = read_text(settings.sys_root / _THP / "enabled")
    chosen = re.search(r"\[(\w+)\]", text or "")
    if chosen is None:
        meaning = "this kernel has none, so --preload copy gains nothing over populate"
        return Finding("huge pages", "not available", meaning, "note")
    pmd = read_text(settings.sys_root / _THP / "hpage_pmd_size") or ""
    found = chosen[1] + (f", {amount(int(pmd))} each" if pmd.isdecimal() else "")
    if chosen[1] == "never":
        meaning = "--preload copy gains nothing over populate"
        remedy = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        return Finding("huge pages", found, meaning, "note", remedy)
    return Finding("huge pages", found, "--preload copy uses them: decoding gains a few percent")


def _reserved_pages(settings: Settings) -> Iterator[Finding]:
    text = read_text(settings.proc_root / "meminfo") or ""
    count = re.search(r"^HugePages_Total:\s+([0-9]+)$", text, re.MULTILINE)
    size = kib_table(text).get("Hugepagesize", 0)
    if count is not None and int(count[1]):
        yield Finding(
            "reserved huge pages",
            f"{count[1]}, {amount(int(count[1]) * size)} in all",
            "set aside for programs that ask for them (hugetlbfs); models cannot use this memory",
            "note",
            "sudo sysctl vm.nr_hugepages=0",
        )


def _swap(settings: Settings) -> Iterator[Finding]:
    lines = (read_text(settings.proc_root / "swaps") or "").splitlines()[1:]
    areas = [words for words in map(str.split, lines) if len(words) == 5 and words[2].isdecimal()]
    if not areas:
        yield Finding("swap", "none", "weights are files: the kernel drops and reads them again without swap")
    compressed = [area for area in areas if "zram" in area[0]]
    if compressed:
        total, used = (sum(int(area[i]) * 1024 for area in compressed) for i in (2, 3))
        found = f"{len(compressed)} × zram, {amount(total)} in all"
        meaning = "compressed memory: quick, but takes memory itself, and is never counted as free"
        if used:
            remedy = "end other programs; sudo swapoff /dev/zram0 && sudo swapon /dev/zram0 then empties it"
            yield Finding("swap", f"{found}, {amount(used)} used", meaning, "note", remedy)
        else:
            yield Finding("swap", found, meaning)
    for name, kind, size, taken, _ in (area for area in areas if "zram" not in area[0]):
        found = f"{name} ({kind}), {amount(int(size) * 1024)}, {amount(int(taken) * 1024)} used"
        if kind == "file" or "mmcblk" in name:
            meaning = "on an SD card or eMMC a swapped KV cache stalls answers for seconds and wears the card"
            remedy = f"use zram instead: apt-get install zram-tools, then swapoff {name}"
            yield Finding("swap", found, meaning, "note", remedy)
        else:
            yield Finding(
                "swap", found, "the KV cache may be swapped when memory is short; weights never are"
            )


def _locked(settings: Settings) -> Iterator[Finding]:
    text = read_text(settings.proc_root / "self/limits") or ""
    line = re.search(r"^Max locked memory\s+(\S+)\s+(\S+)", text, re.MULTILINE)
    if line is None:
        return
    if line[1] == "unlimited":
        yield Finding("RLIMIT_MEMLOCK", "unlimited", "--preload lock works with any model that fits")
    elif line[1].isdecimal():
        yield Finding(
            "RLIMIT_MEMLOCK",
            amount(int(line[1])),
            "--preload lock works only with models whose weights are smaller",
            "note",
            "ulimit -l unlimited, LimitMEMLOCK=infinity in a unit, or a line in /etc/security/limits.conf",
        )
