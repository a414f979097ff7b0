"""A board is recognised from its device tree, a PC from DMI, anything else from its processor."""

from __future__ import annotations

import pytest

from edgeseek.doctor.device import Device, clock_mhz, recognise, temperature_c
from tests.unit.memory.machine import Machine


def board(machine: Machine, model: str, compatible: str) -> str:
    machine.write(machine.proc, {"device-tree/model": f"{model}\0", "device-tree/compatible": compatible})
    return recognise(machine.settings).name


@pytest.mark.parametrize(
    ("model", "compatible", "name"),
    [
        ("Orange Pi 5 Plus", "xunlong,orangepi-5-plus\0rockchip,rk3588\0", "Orange Pi 5 Plus (RK3588)"),
        ("Rockchip RK3588 EVB", "rockchip,rk3588-evb\0rockchip,rk3588s\0", "Rockchip RK3588 EVB"),
        ("", "nvidia,p3768\0nvidia,tegra234\0", "Jetson Orin"),
        (
            "Raspberry Pi 5 Model B Rev 1.0",
            "raspberrypi,5-model-b\0brcm,bcm2712\0",
            "Raspberry Pi 5 Model B Rev 1.0",
        ),
        ("Some New Board", "vendor,chip\0", "Some New Board"),
    ],
)
def test_a_board_has_the_name_of_its_device_tree(
    machine: Machine, model: str, compatible: str, name: str
) -> None:
    assert board(machine, model, compatible) == name


def test_a_pc_has_the_name_that_dmi_tells(machine: Machine) -> None:
    machine.write(machine.sys, {"class/dmi/id/sys_vendor": "Beelink", "class/dmi/id/product_name": "EQ12"})
    machine.write(machine.proc, {"cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) N100"})
    assert recognise(machine.settings) == Device("Beelink EQ12", "Intel(R) N100")


def test_placeholders_in_dmi_are_no_name(machine: Machine) -> None:
    machine.write(
        machine.sys, {"class/dmi/id/sys_vendor": "To Be Filled By O.E.M.", "class/dmi/id/product_name": ""}
    )
    machine.write(machine.proc, {"cpuinfo": "model name\t: AMD Ryzen 7"})
    assert recognise(machine.settings).name == "AMD Ryzen 7"


def test_a_machine_that_tells_nothing_has_a_name_too(machine: Machine) -> None:
    assert recognise(machine.settings) == Device("unknown machine", None)


def test_clock_and_temperature_are_the_highest_readable_ones(machine: Machine) -> None:
    assert clock_mhz(machine.settings) is None
    assert temperature_c(machine.settings) is None
    machine.write(
        machine.sys,
        {
            "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1800000",
            "devices/system/cpu/cpu4/cpufreq/scaling_cur_freq": "2256000",
            "devices/system/cpu/cpu5/cpufreq/scaling_cur_freq": "<unknown>",
            "class/thermal/thermal_zone0/temp": "41000",
            "class/thermal/thermal_zone1/temp": "63500",
            "class/thermal/thermal_zone2/temp": "-274000",
        },
    )
    assert clock_mhz(machine.settings) == 2256.0
    assert temperature_c(machine.settings) == 63.5
