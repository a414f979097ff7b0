"""What /proc/cpuinfo and sysfs tell of the processor: core names, features, clusters.

Reads files below `settings.proc_root` and `settings.sys_root` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from edgeseek.memory.cgroup import read_text
from edgeseek.memory.cpus import parse_cpu_list
from edgeseek.settings import Settings

#: Names by implementer and part number of MIDR_EL1, as in Arm's technical reference manuals.
_ARM_PARTS: Mapping[tuple[int, int], str] = MappingProxyType(
    {
        (0x41, 0xD03): "Cortex-A53",
        (0x41, 0xD04): "Cortex-A35",
        (0x41, 0xD05): "Cortex-A55",
        (0x41, 0xD07): "Cortex-A57",
        (0x41, 0xD08): "Cortex-A72",
        (0x41, 0xD09): "Cortex-A73",
        (0x41, 0xD0A): "Cortex-A75",
        (0x41, 0xD0B): "Cortex-A76",
        (0x41, 0xD0C): "Neoverse-N1",
        (0x41, 0xD0D): "Cortex-A77",
        (0x41, 0xD40): "Neoverse-V1",
        (0x41, 0xD41): "Cortex-A78",
        (0x41, 0xD42): "Cortex-A78AE",
        (0x41, 0xD44): "Cortex-X1",
        (0x41, 0xD46): "Cortex-A510",
        (0x41, 0xD47): "Cortex-A710",
        (0x41, 0xD48): "Cortex-X2",
        (0x41, 0xD49): "Neoverse-N2",
        (0x41, 0xD4D): "Cortex-A715",
        (0x41, 0xD80): "Cortex-A520",
        (0x41, 0xD81): "Cortex-A720",
        (0x4E, 0x004): "Carmel",
    }
)

#: What the core's instruction sets need (native/src/isa.cpp), in the words of /proc/cpuinfo.
_AVX2 = frozenset({"avx", "f16c", "fma", "avx2"})
_NEEDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("avx512", _AVX2 | {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni"}),
    ("avxvnni", _AVX2 | {"avx_vnni"}),
    ("avx2", _AVX2),
    ("neondot", frozenset({"asimd", "asimddp"})),
    ("neon", frozenset({"asimd"})),
)


@dataclass(frozen=True)
class Cluster:
    """CPUs of one kind; `capacity` is the kernel's (1024 for the fastest), `max_mhz` the top clock."""

    cpus: tuple[int, ...]
    core: str
    capacity: int | None
    max_mhz: int | None


def features(settings: Settings) -> frozenset[str]:
    """Feature words of the first processor that lists them."""
    for record in _records(settings):
        words = record.get("flags") or record.get("Features")
        if words:
            return frozenset(words.split())
    return frozenset()


def best_isa(found: frozenset[str]) -> str:
    """The fastest of the core's instruction sets that a processor with these features can run."""
    return next((name for name, needed in _NEEDS if needed <= found), "scalar")


def relevant(found: frozenset[str]) -> tuple[str, ...]:
    """Those features that the core uses, in a fixed order."""
    wanted = frozenset().union(*(needed for _, needed in _NEEDS))
    return tuple(sorted(found & wanted))


def clusters(settings: Settings) -> tuple[Cluster, ...]:
    """The online CPUs by kind, slowest first; empty where the kernel tells nothing."""
    root = settings.sys_root / "devices/system/cpu"
    names = {
        int(record["processor"]): _core_name(record)
        for record in _records(settings)
        if record.get("processor", "").isdecimal()
    }
    online = parse_cpu_list(read_text(root / "online") or "") or tuple(sorted(names))
    kinds: dict[tuple[str, int | None, int | None], list[int]] = {}
    for cpu in online:
        folder = root / f"cpu{cpu}"
        clock = _number(read_text(folder / "cpufreq/cpuinfo_max_freq"))
        kind = (
            names.get(cpu, "unknown core"),
            _number(read_text(folder / "cpu_capacity")),
            None if clock is None else clock // 1000,
        )
        kinds.setdefault(kind, []).append(cpu)
    found = [Cluster(tuple(cpus), *kind) for kind, cpus in kinds.items()]
    return tuple(sorted(found, key=lambda one: (one.capacity or 0, one.max_mhz or 0, one.cpus)))


def _records(settings: Settings) -> list[dict[str, str]]:
    """The blocks of /proc/cpuinfo, one for each processor."""
    records: list[dict[str, str]] = [{}]
    for line in (read_text(settings.proc_root / "cpuinfo") or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            records[-1][name.strip()] = value.strip()
        elif not line.strip():
            records.append({})
    return records


def _core_name(record: Mapping[str, str]) -> str:
    try:
        key = (int(record["CPU implementer"], 0), int(record["CPU part"], 0))
    except (KeyError, ValueError):
        return record.get("model name", "unknown core")
    return _ARM_PARTS.get(key, f"Arm core {key[0]:#04x}/{key[1]:#05x}")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None
