"""Each fault that a machine can have is found and comes with what mends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgeseek.doctor import Finding, Probes, examine
from edgeseek.doctor.cpuinfo import best_isa
from edgeseek.doctor.finding import amount, cpu_list
from edgeseek.doctor.probes import extras_of
from edgeseek.doctor.sensors import power_sensors
from edgeseek.errors import RuntimeFailure
from tests.unit.doctor import boards
from tests.unit.memory.machine import GIB, V2_MOUNT, Machine


def finding(probes: Probes, subject: str) -> Finding:
    (one,) = (one for part in examine(probes).parts.values() for one in part if one.subject == subject)
    return one


def with_settings(probes: Probes, **changes: object) -> Probes:
    return replace(probes, settings=probes.settings.with_changes(**changes))


def test_a_core_that_cannot_be_loaded(machine: Machine) -> None:
    boards.rk3588(machine)
    found = finding(boards.probes(machine), "instruction set")
    assert found.status == "problem"
    assert "GLIBCXX_3.4.29" in found.found
    assert "pip install" in (found.remedy or "")


def test_an_instruction_set_that_is_not_there(machine: Machine) -> None:
    found = finding(with_settings(boards.mini_pc(machine), isa="avx512"), "instruction set")
    assert (found.status, found.remedy) == ("problem", "unset EDGESEEK_ISA")
    assert "avxvnni, avx2, scalar" in found.found


def test_a_slower_instruction_set_that_was_forced(machine: Machine) -> None:
    found = finding(with_settings(boards.mini_pc(machine), isa="avx2"), "instruction set")
    assert (found.status, found.remedy) == ("note", "unset EDGESEEK_ISA")


def test_a_build_that_lacks_what_the_processor_has(machine: Machine) -> None:
    boards.mini_pc(machine)
    found = finding(boards.probes(machine, "avx2", "scalar"), "instruction set")
    assert found.status == "note"
    assert "g++ 11" in (found.remedy or "")


def test_a_virtual_machine_that_hides_avx2(machine: Machine) -> None:
    boards.mini_pc(machine)
    machine.write(
        machine.proc, {"cpuinfo": "processor\t: 0\nmodel name\t: QEMU CPU\nflags\t: fpu sse2 ssse3"}
    )
    found = finding(boards.probes(machine, "scalar"), "instruction set")
    assert found.status == "problem"
    assert "-cpu host" in (found.remedy or "")


@pytest.mark.parametrize(
    ("features", "isa"),
    [
        (boards.A72_FEATURES, "neon"),
        (boards.A76_FEATURES, "neondot"),
        (boards.N100_FLAGS, "avxvnni"),
        (boards.N100_FLAGS.replace("avx_vnni", ""), "avx2"),
        (boards.N100_FLAGS + " avx512f avx512dq avx512bw avx512vl avx512_vnni", "avx512"),
        (boards.N100_FLAGS + " avx512f avx512dq avx512bw avx512vl", "avxvnni"),
        ("fpu sse2", "scalar"),
    ],
)
def test_the_instruction_set_follows_from_the_features(features: str, isa: str) -> None:
    assert best_isa(frozenset(features.split())) == isa


def test_more_threads_than_cores(machine: Machine) -> None:
    found = finding(with_settings(boards.rk3588(machine), threads=8), "threads")
    assert (found.status, found.remedy) == ("note", "unset EDGESEEK_THREADS")


def test_a_quota(machine: Machine) -> None:
    probes = boards.rk3588(machine)
    machine.cgroup("0::/app", V2_MOUNT).group("app", {"cpu.max": "200000 100000"})
    found = finding(probes, "threads")
    assert found.found == "2, decided by cgroup cpu.max of /app"
    assert "CPUQuota=" in (found.remedy or "")


def test_an_affinity_mask(machine: Machine) -> None:
    probes = boards.raspberry_pi_5(machine)
    machine.cpus(4, allowed="0-1")
    found = finding(probes, "threads")
    assert (found.found, found.status) == ("2, decided by affinity mask", "note")


def test_a_governor_that_never_raises_the_clock(machine: Machine) -> None:
    probes = boards.raspberry_pi_5(machine)
    boards.clocks(machine, dict.fromkeys(range(4), 2400000), "powersave", "cpufreq-dt")
    found = finding(probes, "clock governor")
    assert found.status == "problem"
    assert "schedutil" in (found.remedy or "")


def test_a_hot_board(machine: Machine) -> None:
    probes = boards.raspberry_pi_5(machine)
    machine.write(machine.sys / "class/thermal/thermal_zone0", {"temp": "83100"})
    assert finding(probes, "temperature").status == "note"


def test_memory_that_no_model_fits(machine: Machine) -> None:
    probes = boards.raspberry_pi_5(machine)
    machine.memory(available=GIB // 2, total=4 * GIB)
    found = finding(probes, "memory")
    assert found.status == "problem"
    assert "smollm2-135m does not fit" in found.meaning


def test_without_meminfo_nothing_can_be_said(machine: Machine) -> None:
    probes = boards.rk3588(machine)
    (machine.proc / "meminfo").unlink()
    with pytest.raises(RuntimeFailure, match="is /proc mounted"):
        examine(probes)


def test_huge_pages_that_are_switched_off_or_absent(machine: Machine) -> None:
    probes = boards.rk3588(machine)
    boards.huge_pages(machine, "always madvise [never]", 2 << 20)
    found = finding(probes, "huge pages")
    assert (found.status, found.found) == ("note", "never, 2 MiB each")
    assert "echo madvise" in (found.remedy or "")
    (machine.sys / "kernel/mm/transparent_hugepage/enabled").unlink()
    assert finding(probes, "huge pages").found == "not available"


def test_memory_set_aside_for_huge_pages(machine: Machine) -> None:
    probes = boards.rk3588(machine)
    path = machine.proc / "meminfo"
    path.write_text(path.read_text() + "HugePages_Total:     512\nHugepagesize:       2048 kB\n")
    assert finding(probes, "reserved huge pages").found == "512, 1 GiB in all"


def test_swap_on_a_card(machine: Machine) -> None:
    probes = boards.rk3588(machine)
    machine.write(machine.proc, {"swaps": boards.swaps(("/dev/mmcblk0p3", "partition", GIB, GIB // 4))})
    found = finding(probes, "swap")
    assert (found.status, found.found) == ("note", "/dev/mmcblk0p3 (partition), 1 GiB, 256 MiB used")


def test_no_swap_is_fine(machine: Machine) -> None:
    probes = boards.rk3588(machine)
    machine.write(machine.proc, {"swaps": boards.swaps()})
    assert (finding(probes, "swap").found, finding(probes, "swap").status) == ("none", "ok")


def test_a_supply_that_is_too_weak(machine: Machine) -> None:
    probes = boards.raspberry_pi_5(machine)
    boards.hwmon(machine, 2, "rpi_volt", {"in0_lcrit_alarm": "1"})
    found = finding(probes, "supply voltage")
    assert found.status == "problem"
    assert "27 W" in (found.remedy or "")


def test_rapl_that_only_root_may_read(machine: Machine) -> None:
    probes = replace(boards.mini_pc(machine), may_read=lambda path: path.parent.name != "intel-rapl:0")
    found = finding(probes, "power sensor rapl")
    assert found.status == "note"
    package = machine.sys / "class/powercap/intel-rapl:0/energy_uj"
    assert found.remedy == f"sudo chmod a+r {package} (until the next boot)"


def test_an_ina3221_behind_iio_is_read_in_milliwatts(machine: Machine) -> None:
    folder = machine.sys / "bus/iio/devices/iio:device0"
    machine.write(folder, {"name": "ina3221x", "in_power0_input": "3812", "rail_name_0": "POM_5V_IN"})
    (sensor,) = power_sensors(machine.settings, lambda path: True)
    assert (sensor.source, sensor.name) == ("iio", "POM_5V_IN")
    assert sensor.watts == pytest.approx(3.812)


def test_a_battery_is_a_sensor_and_a_charger_is_none(machine: Machine) -> None:
    machine.write(machine.sys / "class/power_supply/BAT0", {"type": "Battery", "power_now": "7500000"})
    machine.write(machine.sys / "class/power_supply/AC", {"type": "Mains", "power_now": "0"})
    (sensor,) = power_sensors(machine.settings, lambda path: True)
    assert (sensor.source, sensor.name, sensor.watts) == ("battery", "BAT0", 7.5)


def test_a_sensor_that_answers_nonsense_has_no_watts(machine: Machine) -> None:
    boards.hwmon(machine, 0, "ina226", {"power1_input": "<error>"})
    (sensor,) = power_sensors(machine.settings, lambda path: True)
    assert sensor.watts is None


def test_an_onnx_runtime_that_does_not_load(machine: Machine) -> None:
    def broken() -> list[str]:
        raise ImportError("libcudnn.so.9: cannot open shared object file")

    found = finding(replace(boards.jetson_orin(machine), providers=broken), "ONNX Runtime")
    assert found.found == "cannot be loaded (libcudnn.so.9: cannot open shared object file)"


def test_missing_packages_of_an_extra(machine: Machine) -> None:
    found = finding(boards.raspberry_pi_5(machine), "extra onnx")
    assert (found.found, found.remedy) == ("missing: onnx, onnxruntime", "pip install 'edgeseek[onnx]'")


def test_extras_are_read_from_the_distribution() -> None:
    lines = [
        "numpy>=1.24",
        "huggingface_hub>=0.25; extra == 'hub'",
        'onnxruntime>=1.20; extra == "onnx"',
        "onnx ; python_version < '3.14' and extra == 'onnx'",
        "tomli>=2; python_version < '3.11'",
    ]
    assert extras_of(lines) == {"hub": ("huggingface_hub",), "onnx": ("onnxruntime", "onnx")}


def test_this_machine_can_be_examined() -> None:
    from edgeseek.settings import Settings

    found = examine(Probes.of_process(Settings.from_environment({"HOME": "/nowhere"})))
    assert set(found.parts) == {"processor", "memory", "power", "software"}
    assert all(one.remedy for part in found.parts.values() for one in part if one.status == "problem")


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 bytes"), (4096, "4 KiB"), (8 << 20, "8 MiB"), (1536 << 20, "1.5 GiB"), (20 << 40, "20480 GiB")],
)
def test_amounts(size: int, shown: str) -> None:
    assert amount(size) == shown


@pytest.mark.parametrize(
    ("cpus", "shown"), [((), ""), ((3,), "3"), ((0, 1, 2, 5, 7, 6), "0-2,5-7"), ((1, 3), "1,3")]
)
def test_cpu_lists(cpus: tuple[int, ...], shown: str) -> None:
    assert cpu_list(cpus) == shown


@pytest.mark.parametrize(
    ("line", "off"),
    [
        ("quiet", False),
        ("coherent_pool=1M cgroup_disable=memory quiet", True),
        ("cgroup_disable=memory root=/dev/mmcblk0p2 cgroup_enable=memory", False),
    ],
)
def test_a_memory_controller_that_the_command_line_switches_off(
    machine: Machine, line: str, off: bool
) -> None:
    probes = boards.rk3588(machine)
    machine.write(machine.proc, {"cmdline": line})
    found = [one for one in examine(probes).parts["memory"] if one.subject == "cgroup memory"]
    assert bool(found) == off
    assert all("cgroup_enable=memory" in (one.remedy or "") for one in found)


def test_a_kernel_without_psi_or_with_it_switched_off(machine: Machine) -> None:
    probes = boards.rk3588(machine)
    assert finding(probes, "memory pressure (PSI)").status == "ok"
    # psi=0 leaves the file and refuses to read it.
    machine.write(machine.proc, {"pressure/memory": ""})
    off = finding(probes, "memory pressure (PSI)")
    assert (off.found, off.status) == ("switched off", "note")
    assert "psi=1" in (off.remedy or "")
    (machine.proc / "pressure/memory").unlink()
    without = finding(probes, "memory pressure (PSI)")
    assert without.found == "not in this kernel"
    assert "CONFIG_PSI" in (without.remedy or "")


def test_memory_in_zram_is_never_free(machine: Machine) -> None:
    probes = boards.rk3588(machine)
    before = finding(probes, "memory").found
    assert "never counted as free" in finding(probes, "swap").meaning
    machine.write(machine.proc, {"swaps": boards.swaps(("/dev/zram0", "partition", 4 * GIB, GIB))})
    found = finding(probes, "swap")
    assert (found.found, found.status) == ("1 × zram, 4 GiB in all, 1 GiB used", "note")
    assert "swapoff /dev/zram0" in (found.remedy or "")
    assert finding(probes, "memory").found == before


@pytest.mark.parametrize(("free", "status"), [(200 << 20, "note"), (60 << 20, "ok")])
def test_contiguous_memory_that_nobody_needs(machine: Machine, free: int, status: str) -> None:
    probes = boards.rk3588(machine)
    path = machine.proc / "meminfo"
    path.write_text(path.read_text() + f"CmaTotal:  262144 kB\nCmaFree:  {free // 1024} kB\n")
    found = finding(probes, "CMA")
    assert (found.found, found.status) == (f"256 MiB, {amount(free)} free", status)
    assert (found.remedy is not None and "cma=64M" in found.remedy) == (status == "note")


def test_memory_that_the_npu_shares(machine: Machine) -> None:
    probes = boards.rk3588(machine)
    for number, size in enumerate((64 << 20, 192 << 20)):
        machine.write(machine.sys / f"kernel/dmabuf/buffers/{number}", {"size": str(size)})
    found = finding(probes, "memory shared with GPU or NPU")
    assert (found.found, found.status) == ("256 MiB in 2 buffers", "note")
    assert "isolate multi-user" in (found.remedy or "")
