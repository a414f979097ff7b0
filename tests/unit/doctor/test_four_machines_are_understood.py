"""The doctor's findings on an RK3588, a Raspberry Pi 5, a Jetson Orin and an x86 mini PC."""

from __future__ import annotations

from edgeseek.doctor import Examination, Finding, examine
from tests.unit.doctor import boards
from tests.unit.memory.machine import Machine


def about(found: Examination, subject: str) -> list[Finding]:
    return [one for part in found.parts.values() for one in part if one.subject == subject]


def the(found: Examination, subject: str) -> Finding:
    (one,) = about(found, subject)
    return one


def states(found: Examination) -> dict[str, str]:
    """The status of every subject that is not ok."""
    return {one.subject: one.status for part in found.parts.values() for one in part if one.status != "ok"}


def test_rk3588(machine: Machine) -> None:
    found = examine(boards.rk3588(machine))
    assert found.device.name == "Xunlong Orange Pi 5 Plus (RK3588)"
    little, big = about(found, "cores")
    assert little.found == "4 × Cortex-A55 (CPU 0-3), up to 1800 MHz, capacity 530"
    assert little.meaning.startswith("left alone")
    assert big.found == "4 × Cortex-A76 (CPU 4-7), up to 2304 MHz, capacity 1024"
    assert big.meaning == "models run here"
    assert the(found, "instruction set").found == "neondot (features: asimd asimddp)"
    assert the(found, "threads").found == "4, decided by big cluster (cpu_capacity)"
    assert the(found, "power sensor ina226").found == "power1 6.47 W"
    assert the(found, "swap").found == "1 × zram, 4 GiB in all"
    assert the(found, "extra hub").found == "huggingface_hub 0.35.3"
    # 6 GiB available less a reserve of 819.2 MiB, four fifths of it at 4.5 bits.
    assert "up to about 7.9 billion weights" in the(found, "memory").meaning
    assert states(found) == {"RLIMIT_MEMLOCK": "note", "extra onnx": "note", "ONNX Runtime": "note"}


def test_raspberry_pi_5(machine: Machine) -> None:
    found = examine(boards.raspberry_pi_5(machine))
    assert found.device.name == "Raspberry Pi 5 Model B Rev 1.0"
    assert the(found, "page size").found == "16 KiB"
    assert "kernel=kernel8.img" in (the(found, "page size").remedy or "")
    assert the(found, "huge pages").found == "always, 32 MiB each"
    assert the(found, "supply voltage").status == "ok"
    assert "swapoff /var/swap" in (the(found, "swap").remedy or "")
    assert states(found) == {
        "cgroup memory": "note",
        "memory pressure (PSI)": "note",
        "swap": "note",
        "RLIMIT_MEMLOCK": "note",
        "power sensors": "note",
        "extra hub": "note",
        "extra onnx": "note",
        "ONNX Runtime": "note",
    }


def test_jetson_orin(machine: Machine) -> None:
    found = examine(boards.jetson_orin(machine))
    assert found.device.name == "NVIDIA Jetson Orin Nano Developer Kit"
    assert the(found, "cores").found == "6 × Cortex-A78AE (CPU 0-5), up to 1510 MHz"
    # Volts times amperes of each rail; the shunts and their sum are no rails.
    assert the(found, "power sensor ina3221").found == "VDD_IN 5.48 W, VDD_CPU_GPU_CV 0.79 W, VDD_SOC 1.47 W"
    assert the(found, "ONNX Runtime").meaning == "exported graphs can run on Tensorrt, CUDA"
    assert the(found, "extra onnx").found == "onnx 1.19.0, onnxruntime 1.23.0"
    assert the(found, "swap").found == "6 × zram, 3.7 GiB in all"
    assert states(found) == {}


def test_mini_pc_in_a_container(machine: Machine) -> None:
    found = examine(boards.mini_pc(machine))
    assert found.device.name == "Beelink EQ12"
    assert the(found, "instruction set").found == "avxvnni (features: avx avx2 avx_vnni f16c fma)"
    limit = the(found, "cgroup memory.max of /app")
    assert (limit.found, limit.status) == ("4 GiB, 3 GiB left", "note")
    assert "--memory of the container" in (limit.remedy or "")
    # 3 GiB less a 32nd of 4, which is left for the kernel.
    assert the(found, "memory").meaning.startswith("2.9 GiB for a model under all limits")
    assert the(found, "power sensor rapl").found == "package-0, core, uncore"
    assert the(found, "clock governor").status == "ok"
    assert the(found, "swap").status == "ok"
