"""Checks of the processor: cores, instruction set, threads, clock, temperature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from edgeseek.doctor import cpuinfo
from edgeseek.doctor.device import temperature_c
from edgeseek.doctor.finding import Finding, cpu_list
from edgeseek.doctor.probes import Probes
from edgeseek.memory.cgroup import read_text
from edgeseek.memory.cpus import CpuLimits, usable_cpus
from edgeseek.settings import Settings

#: Above this boards lower their clock: an RK3588 from 85, a Raspberry Pi 5 from 80 to 85 degrees Celsius.
_HOT_C = 80.0
#: Drivers that choose the clock themselves, whatever the governor is called.
_SELF_DRIVEN = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp")

_MEANINGS = {
    "avx512": "integer dot products of 64 bytes: the fastest kernels",
    "avxvnni": "integer dot products of 32 bytes",
    "avx2": "no integer dot product: prompts take more instructions than with AVX-VNNI",
    "neondot": "integer dot products of 16 bytes: the fastest kernels for Arm",
    "neon": "no dotprod (as on a Raspberry Pi 4): prompts take more instructions than with it",
    "scalar": "portable code, many times slower than vector code",
}


def check(probes: Probes) -> Iterator[Finding]:
    """All findings about the processor."""
    limits = usable_cpus(probes.settings)
    yield from _cores(probes.settings, limits)
    yield _instruction_set(probes)
    yield _threads(limits)
    yield from _clock(probes.settings, limits)
    yield from _temperature(probes.settings)


def _cores(settings: Settings, limits: CpuLimits) -> Iterator[Finding]:
    found = cpuinfo.clusters(settings)
    if not found:
        yield Finding(
            "cores", "not readable", "/proc/cpuinfo and sysfs tell nothing about the processor", "note"
        )
    for cluster in found:
        words = [f"{len(cluster.cpus)} × {cluster.core} (CPU {cpu_list(cluster.cpus)})"]
        if cluster.max_mhz is not None:
            words.append(f"up to {cluster.max_mhz} MHz")
        if cluster.capacity is not None:
            words.append(f"capacity {cluster.capacity}")
        used = set(limits.cpus) & set(cluster.cpus)
        if used == set(cluster.cpus):
            meaning = "models run here"
        elif used:
            meaning = f"models run on CPU {cpu_list(used)}"
        else:
            meaning = "left alone: a slower core would hold the others up at every layer's end"
        yield Finding("cores", ", ".join(words), meaning)


def _instruction_set(probes: Probes) -> Finding:
    features = cpuinfo.features(probes.settings)
    best = cpuinfo.best_isa(features)
    has = " ".join(cpuinfo.relevant(features)) or "none that the core uses"
    try:
        available = probes.isas()
    except ImportError as error:
        return Finding(
            "instruction set",
            f"the core cannot be loaded ({error})",
            "no model can run",
            "problem",
            "reinstall edgeseek on this machine: pip install --force-reinstall edgeseek",
        )
    forced = probes.settings.isa
    if forced is not None and forced not in available:
        return Finding(
            "instruction set",
            f"EDGESEEK_ISA={forced}; this machine and build have {', '.join(available)}",
            "no model can run",
            "problem",
            "unset EDGESEEK_ISA",
        )
    chosen = forced or available[0]
    found = f"{chosen} (features: {has})"
    if chosen != available[0]:
        meaning = f"forced by EDGESEEK_ISA; {available[0]} gives the same results faster"
        return Finding("instruction set", found, meaning, "note", "unset EDGESEEK_ISA")
    if best != chosen and best not in available and best != "scalar":
        meaning = f"the processor has {best}, this build of the core has not: {_MEANINGS[chosen]}"
        remedy = "rebuild with g++ 11 or newer, which knows AVX-VNNI" if best == "avxvnni" else "rebuild"
        return Finding("instruction set", found, meaning, "note", f"{remedy}: pip install --no-cache-dir .")
    if chosen == "scalar":
        remedy = "in a virtual machine, pass the host's processor through (QEMU: -cpu host)"
        return Finding("instruction set", found, _MEANINGS[chosen], "problem", remedy)
    return Finding("instruction set", found, _MEANINGS[chosen])


def _threads(limits: CpuLimits) -> Finding:
    found = f"{limits.threads}, decided by {limits.decided_by}"
    where = f"steps run on CPU {cpu_list(limits.cpus)}"
    if limits.decided_by == "EDGESEEK_THREADS" and limits.threads > len(limits.cpus):
        meaning = f"more threads than the {len(limits.cpus)} CPUs worth running on: they wait for each other"
        return Finding("threads", found, meaning, "note", "unset EDGESEEK_THREADS")
    if limits.decided_by == "affinity mask":
        meaning = f"this process may use some of the CPUs only: {where}"
        remedy = "start it without taskset, or widen AllowedCPUs= or --cpuset-cpus"
        return Finding("threads", found, meaning, "note", remedy)
    if limits.decided_by.startswith("cgroup"):
        meaning = f"the quota allows fewer threads than the {len(limits.cpus)} CPUs worth running on"
        return Finding(
            "threads", found, meaning, "note", "raise CPUQuota= of the unit or --cpus of the container"
        )
    return Finding("threads", found, where)


def _clock(settings: Settings, limits: CpuLimits) -> Iterator[Finding]:
    root = settings.sys_root / "devices/system/cpu"
    pairs: Counter[tuple[str, str]] = Counter()
    for cpu in limits.cpus:
        governor = read_text(root / f"cpu{cpu}/cpufreq/scaling_governor")
        if governor:
            pairs[governor, read_text(root / f"cpu{cpu}/cpufreq/scaling_driver") or "unknown driver"] += 1
    for (governor, driver), _ in pairs.most_common():
        found = f"{governor} ({driver})"
        if governor == "powersave" and driver not in _SELF_DRIVEN:
            yield Finding(
                "clock governor",
                found,
                "the CPUs stay at their lowest clock",
                "problem",
                "echo schedutil | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            )
        else:
            yield Finding("clock governor", found, "the clock rises with the load")


def _temperature(settings: Settings) -> Iterator[Finding]:
    warmth = temperature_c(settings)
    if warmth is None:
        return
    found = f"{warmth:.0f} °C, the hottest zone"
    if warmth >= _HOT_C:
        meaning = "boards lower their clock at 80 to 85 °C: speeds will fall"
        yield Finding("temperature", found, meaning, "note", "a heat sink or a fan; see bench --sustained")
    else:
        yield Finding("temperature", found, f"below {_HOT_C:.0f} °C, where boards begin to throttle")
