"""Power sensors that the kernel shows: hwmon (INA219, INA226, INA3221 and others), IIO, RAPL, batteries.

Finds them and reads each once; energy accounting is not done here. Units are those of the kernel's
`Documentation/hwmon/sysfs-interface`: millivolts, milliamperes, microwatts, microjoules. Reads files
below `settings.sys_root` only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from edgeseek.memory.cgroup import read_text
from edgeseek.settings import Settings


@dataclass(frozen=True)
class PowerSensor:
    """`watts` is None where it counts energy (RAPL) or may not be read; `path` is the file to read."""

    #: hwmon's chip name, "iio", "rapl" or "battery".
    source: str
    name: str
    path: Path
    watts: float | None
    readable: bool


class _Found(NamedTuple):
    source: str
    name: str
    path: Path
    watts: float | None


def power_sensors(settings: Settings, may_read: Callable[[Path], bool]) -> tuple[PowerSensor, ...]:
    """Every sensor, by source; `may_read` says whether this user may read a file."""
    root = settings.sys_root
    return tuple(
        PowerSensor(source, name, path, watts, may_read(path))
        for find in (_hwmon, _iio, _rapl, _batteries)
        for source, name, path, watts in find(root)
    )


def undervoltage(settings: Settings) -> bool | None:
    """Whether a Raspberry Pi has seen its supply below 4.63 V; None where there is no such alarm."""
    for folder in _numbered(settings.sys_root / "class/hwmon", "hwmon"):
        if read_text(folder / "name") == "rpi_volt":
            alarm = read_text(folder / "in0_lcrit_alarm")
            return None if alarm is None else alarm == "1"
    return None


def _hwmon(root: Path) -> Iterator[_Found]:
    for folder in _numbered(root / "class/hwmon", "hwmon"):
        chip = read_text(folder / "name") or folder.name
        files = {path.name for path in _entries(folder)}
        for channel in sorted(_channels(files, r"power(\d+)_(?:input|average)")):
            suffix = "input" if f"power{channel}_input" in files else "average"
            path = folder / f"power{channel}_{suffix}"
            label = read_text(folder / f"power{channel}_label") or f"power{channel}"
            yield _Found(chip, label, path, _scaled(path, 1e-6))
        # An INA3221 gives volts and amperes of three channels; its other voltages are those of the shunts.
        if chip == "ina3221":
            for channel in sorted(_channels(files, r"curr([123])_input")):
                volts = _scaled(folder / f"in{channel}_input", 1e-3)
                path = folder / f"curr{channel}_input"
                amperes = _scaled(path, 1e-3)
                watts = None if volts is None or amperes is None else volts * amperes
                yield _Found(chip, read_text(folder / f"in{channel}_label") or f"in{channel}", path, watts)


def _iio(root: Path) -> Iterator[_Found]:
    """Jetson kernels before JetPack 5 show an INA3221 here, in milliwatts."""
    for folder in _numbered(root / "bus/iio/devices", "iio:device"):
        if "ina3221" in (read_text(folder / "name") or ""):
            for channel in sorted(_channels({p.name for p in _entries(folder)}, r"in_power(\d)_input")):
                path = folder / f"in_power{channel}_input"
                label = read_text(folder / f"rail_name_{channel}") or f"in_power{channel}"
                yield _Found("iio", label, path, _scaled(path, 1e-3))


def _rapl(root: Path) -> Iterator[_Found]:
    for folder in _entries(root / "class/powercap"):
        path = folder / "energy_uj"
        # intel-rapl-mmio counts the package a second time.
        if re.fullmatch(r"intel-rapl:\d+(:\d+)*", folder.name) and path.exists():
            yield _Found("rapl", read_text(folder / "name") or folder.name, path, None)


def _batteries(root: Path) -> Iterator[_Found]:
    for folder in _entries(root / "class/power_supply"):
        path = folder / "power_now"
        if read_text(folder / "type") == "Battery" and path.exists():
            yield _Found("battery", folder.name, path, _scaled(path, 1e-6))


def _scaled(path: Path, unit: float) -> float | None:
    text = read_text(path) or ""
    return int(text) * unit if re.fullmatch(r"-?[0-9]+", text) else None


def _channels(files: set[str], pattern: str) -> set[int]:
    return {int(match[1]) for match in (re.fullmatch(pattern, name) for name in files) if match}


def _numbered(folder: Path, prefix: str) -> list[Path]:
    """Entries `prefix0`, `prefix1` … in the order of their numbers."""
    found = [path for path in _entries(folder) if re.fullmatch(rf"{re.escape(prefix)}\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix(prefix)))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
