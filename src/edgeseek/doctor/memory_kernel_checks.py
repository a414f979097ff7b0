"""Checks of what the kernel knows about memory: pressure, and memory that devices share."""

from __future__ import annotations

from collections.abc import Iterator

from edgeseek.doctor.finding import Finding, amount
from edgeseek.memory.cgroup import read_text
from edgeseek.memory.limits import kib_table
from edgeseek.settings import Settings

#: More than this for a camera or a display that nobody has is worth a word.
_MUCH_CMA = 128 << 20
_KERNEL_LINE = "the kernel's command line (/boot/firmware/cmdline.txt on a Raspberry Pi)"


def pressure(settings: Settings) -> Iterator[Finding]:
    """Whether the kernel tells how short memory is (PSI), which the memory guard acts on."""
    path = settings.proc_root / "pressure/memory"
    text = read_text(path)
    if text:
        yield Finding(
            "memory pressure (PSI)", "on", "the memory guard of `serve` acts before anything is killed"
        )
        return
    meaning = "the memory guard must guess from /proc/vmstat and acts later"
    if path.exists():
        yield Finding(
            "memory pressure (PSI)", "switched off", meaning, "note", f"add psi=1 to {_KERNEL_LINE}"
        )
    else:
        remedy = f"add psi=1 to {_KERNEL_LINE}, or use a kernel with CONFIG_PSI"
        yield Finding("memory pressure (PSI)", "not in this kernel", meaning, "note", remedy)


def contiguous(settings: Settings) -> Iterator[Finding]:
    """The area that is kept for devices which need contiguous memory (CMA)."""
    sizes = kib_table(read_text(settings.proc_root / "meminfo") or "")
    total, free = sizes.get("CmaTotal", 0), sizes.get("CmaFree", 0)
    if not total:
        return
    found = f"{amount(total)}, {amount(free)} free"
    meaning = (
        "kept for cameras, displays and NPUs; private memory may use it meanwhile, mapped weights may not, "
        "so MemAvailable promises them too much"
    )
    if free > _MUCH_CMA:
        remedy = f"cma=64M on {_KERNEL_LINE}, if no camera or NPU needs it"
        yield Finding("CMA", found, meaning, "note", remedy)
    else:
        yield Finding("CMA", found, meaning)


def shared_with_devices(settings: Settings) -> Iterator[Finding]:
    """Buffers that a GPU or NPU shares with programs: they live in the same memory as models."""
    buffers = settings.sys_root / "kernel/dmabuf/buffers"
    if not buffers.is_dir():
        return
    sizes = [read_text(one / "size") or "" for one in buffers.iterdir()]
    total = sum(int(size) for size in sizes if size.isdecimal())
    if not total:
        return
    found = f"{amount(total)} in {len(sizes)} buffers"
    meaning = "GPU, NPU, video and display use the same memory; it is not available to models"
    remedy = (
        "end programs that use the GPU or NPU, or run without a desktop: sudo systemctl isolate multi-user"
    )
    yield Finding("memory shared with GPU or NPU", found, meaning, "note", remedy)
