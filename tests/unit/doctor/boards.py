"""Four machines as their /proc and /sys show themselves, cut down to what the doctor reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeseek.doctor.probes import Probes
from tests.unit.memory.machine import GIB, V2_MOUNT, Machine

A76_FEATURES = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
)
A72_FEATURES = "fp asimd evtstrm crc32 cpuid"
N100_FLAGS = (
    "fpu vme de pse tsc msr pae mce cx8 sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ss ht "
    "syscall nx rdtscp lm constant_tsc pni pclmulqdq ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt aes xsave avx "
    "f16c rdrand lahf_lm abm fsgsbase bmi1 avx2 smep bmi2 erms invpcid rdseed adx clflushopt clwb sha_ni "
    "xsaveopt xsavec avx_vnni umip waitpkg gfni vaes vpclmulqdq rdpid movdiri serialize arch_capabilities"
)
PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0"
EXTRAS = {"hub": ("huggingface_hub",), "onnx": ("onnx", "onnxruntime"), "dev": ("pytest",)}


def probes(
    machine: Machine,
    *isas: str,
    page_size: int = 4096,
    installed: Mapping[str, str] | None = None,
    providers: Sequence[str] | None = None,
) -> Probes:
    """What the core and the installed packages answer; no instruction set stands for a core that fails."""

    def supported() -> list[str]:
        if not isas:
            raise ImportError("libstdc++.so.6: version `GLIBCXX_3.4.29' not found")
        return [*isas]

    def found() -> list[str]:
        if providers is None:
            raise ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")
        return [*providers]

    versions = dict(installed or {})
    return Probes(machine.settings, page_size, supported, EXTRAS, versions.get, lambda path: True, found)


def rk3588(machine: Machine) -> Probes:
    """An Orange Pi 5 Plus with 8 GB: 4 Cortex-A55, 2 + 2 Cortex-A76, an INA226, swap in zram."""
    capacity = {0: 530, 1: 530, 2: 530, 3: 530, 4: 1024, 5: 1024, 6: 1024, 7: 1024}
    machine.memory(available=6 * GIB, total=8 * GIB).cpus(8, capacity=capacity)
    machine.write(
        machine.proc,
        {
            "cpuinfo": arm_cpuinfo(A76_FEATURES, [0xD05] * 4 + [0xD0B] * 4),
            "device-tree/model": "Xunlong Orange Pi 5 Plus\0",
            "device-tree/compatible": "xunlong,orangepi-5-plus\0rockchip,rk3588\0",
            "swaps": swaps(("/dev/zram0", "partition", 4 * GIB, 0)),
            "self/limits": limits("8388608"),
            "pressure/memory": PSI,
        },
    )
    clocks(machine, {cpu: 1800000 if cpu < 4 else 2304000 for cpu in range(8)}, "schedutil", "cpufreq-dt")
    huge_pages(machine, "always [madvise] never", 2 << 20)
    hwmon(machine, 0, "soc_thermal", {"temp1_input": "48000"})
    hwmon(machine, 3, "ina226", {"power1_input": "6475000", "in1_input": "5012", "curr1_input": "1292"})
    machine.write(machine.sys / "class/thermal/thermal_zone0", {"temp": "48076"})
    return probes(machine, "neondot", "neon", "scalar", installed={"huggingface_hub": "0.35.3"})


def raspberry_pi_5(machine: Machine) -> Probes:
    """A Raspberry Pi 5 with 4 GB, pages of 16 KiB, swap on the card, its cgroup limits switched off."""
    machine.memory(available=3 * GIB, total=4 * GIB).cpus(4)
    machine.write(
        machine.proc,
        {
            "cpuinfo": arm_cpuinfo(A76_FEATURES, [0xD0B] * 4) + "\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0",
            "device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
            "device-tree/compatible": "raspberrypi,5-model-b\0brcm,bcm2712\0",
            "cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t80\t1\nmemory\t0\t80\t0",
            "swaps": swaps(("/var/swap", "file", 512 << 20, 0)),
            "self/limits": limits("525680640"),
        },
    )
    clocks(machine, dict.fromkeys(range(4), 2400000), "ondemand", "cpufreq-dt")
    huge_pages(machine, "[always] madvise never", 32 << 20)
    hwmon(machine, 0, "cpu_thermal", {"temp1_input": "52350"})
    hwmon(machine, 2, "rpi_volt", {"in0_lcrit_alarm": "0"})
    machine.write(machine.sys / "class/thermal/thermal_zone0", {"temp": "52350"})
    return probes(machine, "neondot", "neon", "scalar", page_size=16384)


def jetson_orin(machine: Machine) -> Probes:
    """A Jetson Orin Nano with 8 GB: an INA3221 with three rails, zram on every core, a GPU provider."""
    machine.memory(available=5 * GIB, total=7 * GIB).cpus(6)
    machine.write(
        machine.proc,
        {
            "cpuinfo": arm_cpuinfo(A76_FEATURES + " uscat ilrcpc flagm paca pacg", [0xD42] * 6),
            "device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\0",
            "device-tree/compatible": "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0",
            "swaps": swaps(*((f"/dev/zram{n}", "partition", 635 << 20, 0) for n in range(6))),
            "self/limits": limits("unlimited"),
            "pressure/memory": PSI,
        },
    )
    clocks(machine, dict.fromkeys(range(6), 1510400), "schedutil", "tegra194")
    huge_pages(machine, "[always] madvise never", 2 << 20)
    rails = {1: ("VDD_IN", 4960, 1104), 2: ("VDD_CPU_GPU_CV", 4960, 160), 3: ("VDD_SOC", 4960, 296)}
    files = {}
    for channel, (label, millivolts, milliamperes) in rails.items():
        files[f"in{channel}_label"] = label
        files[f"in{channel}_input"] = str(millivolts)
        files[f"curr{channel}_input"] = str(milliamperes)
        files[f"in{channel + 3}_input"] = "2"  # the shunts
    hwmon(machine, 1, "ina3221", {**files, "in7_label": "sum of shunt voltages", "curr4_input": "1560"})
    versions = {"onnx": "1.19.0", "onnxruntime": "1.23.0", "huggingface_hub": "0.35.3"}
    providers = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    return probes(machine, "neondot", "neon", "scalar", installed=versions, providers=providers)


def mini_pc(machine: Machine) -> Probes:
    """An Intel N100 with 16 GB, in a container of 4 GiB: RAPL that only root may read, a swap partition."""
    machine.memory(available=12 * GIB, total=16 * GIB).cpus(4)
    machine.cgroup("0::/app", V2_MOUNT)
    machine.group("app", {"memory.max": str(4 * GIB), "memory.current": str(GIB)})
    machine.write(machine.sys, {"class/dmi/id/sys_vendor": "Beelink", "class/dmi/id/product_name": "EQ12"})
    records = [
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) N100\n"
        f"flags\t\t: {N100_FLAGS}\n"
        for cpu in range(4)
    ]
    machine.write(
        machine.proc,
        {
            "cpuinfo": "\n".join(records),
            "swaps": swaps(("/dev/nvme0n1p3", "partition", 2 * GIB, 0)),
            "self/limits": limits("8388608"),
            "pressure/memory": PSI,
        },
    )
    clocks(machine, dict.fromkeys(range(4), 3400000), "powersave", "intel_pstate")
    huge_pages(machine, "always [madvise] never", 2 << 20)
    power = machine.sys / "class/powercap"
    machine.write(power, {"intel-rapl/enabled": "1"})
    for zone, name in (("0", "package-0"), ("0:0", "core"), ("0:1", "uncore")):
        machine.write(power / f"intel-rapl:{zone}", {"name": name, "energy_uj": "1"})
    machine.write(power / "intel-rapl-mmio:0", {"name": "package-0", "energy_uj": "1"})
    return probes(machine, "avxvnni", "avx2", "scalar", installed={"huggingface_hub": "0.35.3"})


def arm_cpuinfo(features: str, parts: Sequence[int]) -> str:
    return "\n\n".join(
        f"processor\t: {cpu}\nBogoMIPS\t: 48.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
        f"CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {part:#x}\nCPU revision\t: 0"
        for cpu, part in enumerate(parts)
    )


def clocks(machine: Machine, top: Mapping[int, int], governor: str, driver: str) -> None:
    for cpu, clock in top.items():
        machine.write(
            machine.sys / f"devices/system/cpu/cpu{cpu}/cpufreq",
            {"cpuinfo_max_freq": str(clock), "scaling_governor": governor, "scaling_driver": driver},
        )


def huge_pages(machine: Machine, enabled: str, size: int) -> None:
    folder = machine.sys / "kernel/mm/transparent_hugepage"
    machine.write(folder, {"enabled": enabled, "hpage_pmd_size": str(size)})


def hwmon(machine: Machine, number: int, name: str, files: Mapping[str, str]) -> None:
    machine.write(machine.sys / f"class/hwmon/hwmon{number}", {"name": name, **files})


def limits(locked: str) -> str:
    return (
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max address space         unlimited            unlimited            bytes\n"
        f"Max locked memory         {locked:<20} {locked:<20} bytes"
    )


def swaps(*areas: tuple[str, str, int, int]) -> str:
    lines = ["Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"]
    lines += [f"{name}\t{kind}\t{size // 1024}\t{used // 1024}\t-2" for name, kind, size, used in areas]
    return "\n".join(lines)
