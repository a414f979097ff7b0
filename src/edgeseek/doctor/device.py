"""Which board or machine this is, its clock and its temperature.

Reads files below `settings.proc_root` and `settings.sys_root` only; whatever is absent is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgeseek.memory.cgroup import read_text
from edgeseek.settings import Settings

#: What a device tree's `compatible` list says, and the name people know it by.
_CHIPS = (
    ("rockchip,rk3588", "RK3588"),
    ("nvidia,tegra234", "Jetson Orin"),
    ("nvidia,tegra194", "Jetson Xavier"),
    ("brcm,bcm2712", "Raspberry Pi 5"),
    ("brcm,bcm2711", "Raspberry Pi 4"),
)
#: What DMI says where nobody filled it in.
_EMPTY = {"", "to be filled by o.e.m.", "system product name", "default string", "none", "not specified"}


@dataclass(frozen=True)
class Device:
    """`name` is for tables; `cpu` is the processor's own name where the kernel tells it."""

    name: str
    cpu: str | None


def recognise(settings: Settings) -> Device:
    """The board's name from the device tree, else the product's from DMI, else the processor's."""
    cpu = _cpu(settings)
    name = _board(settings) or _product(settings) or cpu or "unknown machine"
    return Device(name, cpu)


def clock_mhz(settings: Settings) -> float | None:
    """The highest current clock of any CPU in MHz."""
    clocks = []
    for folder in sorted((settings.sys_root / "devices/system/cpu").glob("cpu[0-9]*")):
        text = (read_text(folder / "cpufreq/scaling_cur_freq") or "").strip()
        if text.isdecimal():
            clocks.append(int(text) / 1000)
    return max(clocks, default=None)


def temperature_c(settings: Settings) -> float | None:
    """The hottest thermal zone in degrees Celsius."""
    found = []
    for zone in sorted((settings.sys_root / "class/thermal").glob("thermal_zone*")):
        text = (read_text(zone / "temp") or "").strip()
        if re.fullmatch(r"-?\d+", text) and -40_000 < int(text) < 150_000:
            found.append(int(text) / 1000)
    return max(found, default=None)


def _board(settings: Settings) -> str | None:
    root = settings.proc_root / "device-tree"
    model = (read_text(root / "model") or "").rstrip("\0\n").strip()
    compatible = (read_text(root / "compatible") or "").split("\0")
    for key, chip in _CHIPS:
        if any(entry.strip().startswith(key) for entry in compatible):
            return chip if not model else model if chip.lower() in model.lower() else f"{model} ({chip})"
    return model or None


def _product(settings: Settings) -> str | None:
    root = settings.sys_root / "class/dmi/id"
    words = [(read_text(root / name) or "").strip() for name in ("sys_vendor", "product_name")]
    words = [word for word in words if word.lower() not in _EMPTY]
    return " ".join(words) or None


def _cpu(settings: Settings) -> str | None:
    for line in (read_text(settings.proc_root / "cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "Hardware") and value.strip():
            return value.strip()
    return None
