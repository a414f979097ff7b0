"""Checks of power: sensors that energy can be measured with, and a supply that is too weak."""

from __future__ import annotations

from collections.abc import Iterator

from edgeseek.doctor.finding import Finding
from edgeseek.doctor.probes import Probes
from edgeseek.doctor.sensors import PowerSensor, power_sensors, undervoltage


def check(probes: Probes) -> Iterator[Finding]:
    """All findings about power."""
    sensors = power_sensors(probes.settings, probes.may_read)
    if not sensors:
        yield Finding(
            "power sensors",
            "none",
            "energy cannot be measured here; speeds can",
            "note",
            "an INA226 or INA3221 on the I2C bus with its driver, or an external meter",
        )
    sources: dict[str, list[PowerSensor]] = {}
    for sensor in sensors:
        sources.setdefault(sensor.source, []).append(sensor)
    for source, group in sources.items():
        yield _source(source, group)
    alarm = undervoltage(probes.settings)
    if alarm is not None:
        yield _supply(alarm)


def _source(source: str, group: list[PowerSensor]) -> Finding:
    names = ", ".join(one.name if one.watts is None else f"{one.name} {one.watts:.2f} W" for one in group)
    subject = f"power sensor {source}"
    locked = [one for one in group if not one.readable]
    if locked:
        meaning = "counts energy, but only root may read it (since 2020, against side channels)"
        if source != "rapl":
            meaning = "this user may not read it"
        remedy = f"sudo chmod a+r {' '.join(str(one.path) for one in locked)} (until the next boot)"
        return Finding(subject, names, meaning, "note", remedy)
    if source == "rapl":
        return Finding(subject, names, "counts the energy of the processor, not of the whole device")
    if source == "battery":
        return Finding(subject, names, "power of the whole device while it runs on battery")
    return Finding(subject, names, "power can be measured here")


def _supply(alarm: bool) -> Finding:
    if not alarm:
        return Finding("supply voltage", "no alarm", "the supply holds its voltage")
    return Finding(
        "supply voltage",
        "too low",
        "the firmware has seen less than 4.63 V and lowers the clock",
        "problem",
        "a stronger supply (27 W USB-C for a Raspberry Pi 5) or a shorter, thicker cable",
    )
