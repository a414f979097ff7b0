"""All checks in the order in which a person reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from edgeseek.doctor import memory_checks, power_checks, processor_checks, software_checks
from edgeseek.doctor.device import Device, recognise
from edgeseek.doctor.finding import Finding
from edgeseek.doctor.probes import Probes

_PARTS: MappingProxyType[str, Callable[[Probes], Iterator[Finding]]] = MappingProxyType(
    {
        "processor": processor_checks.check,
        "memory": memory_checks.check,
        "power": power_checks.check,
        "software": software_checks.check,
    }
)


@dataclass(frozen=True)
class Examination:
    """Findings by part: processor, memory, power, software."""

    device: Device
    parts: dict[str, tuple[Finding, ...]]

    def count(self, status: str) -> int:
        """How many findings have this status."""
        return sum(finding.status == status for part in self.parts.values() for finding in part)

    def as_json(self) -> dict[str, Any]:
        """Plain values, with the number of notes and problems."""
        return {
            "device": asdict(self.device),
            "notes": self.count("note"),
            "problems": self.count("problem"),
            "findings": [
                {"part": name, **asdict(finding)} for name, part in self.parts.items() for finding in part
            ],
        }


def examine(probes: Probes) -> Examination:
    """Run every check. Raises RuntimeFailure where /proc/meminfo is unreadable: nothing can be said then."""
    return Examination(
        recognise(probes.settings), {name: tuple(check(probes)) for name, check in _PARTS.items()}
    )
