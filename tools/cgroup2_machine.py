"""Run a command in an emulated machine whose kernel has the version 2 memory controller and PSI.

    apt-get install qemu-system-x86 busybox-static cpio kmod
    apt-get download linux-image-6.1.0-57-amd64 && dpkg -x linux-image-*.deb kernel
    python tools/cgroup2_machine.py kernel -- .venv/bin/python -m pytest -m memory_group tests/synthetic

The machine sees this file system read-only (9p), has an empty disk at /mnt for TMPDIR and nothing else: no
network, no privileges here. It prints what the command prints, and exits with its exit code. Emulation is
some fifty times slower than the processor. Needs no root.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

#: What the root file system, the disk and the checksums of ext4 need.
MODULES = ("virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "crc32c_generic", "ext4")
DISK_BYTES = 1 << 30
_EXIT = re.compile(rb"^exit code (\d+)\r?$", re.MULTILINE)

_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in {modules}; do modprobe $module || echo "no module $module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 host /host || poweroff -f
mount -t proc proc /host/proc
mount -t sysfs sysfs /host/sys
mount -t devtmpfs devtmpfs /host/dev
mount -t tmpfs tmpfs /host/tmp
mount -t ext4 /dev/vda /host/mnt
mount -t cgroup2 cgroup2 /host/sys/fs/cgroup
echo +memory > /host/sys/fs/cgroup/cgroup.subtree_control
chroot /host /bin/sh /mnt/command
echo "exit code $?"
poweroff -f
"""


def main(words: Sequence[str] | None = None) -> int:
    """Build the machine, boot it, and return the command's exit code; 125 where it never got that far."""
    parser = argparse.ArgumentParser(
        description="Run a command on a kernel with cgroup v2's memory controller."
    )
    parser.add_argument("kernel", type=Path, help="folder that dpkg -x made of Debian's linux-image package")
    parser.add_argument("--memory", default="2G", help="of the machine")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds until it is ended")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        image = _initramfs(options.kernel, work)
        disk = _disk(work, options.command)
        return _boot(options.kernel, image, disk, options.memory, options.timeout)


def _initramfs(kernel: Path, work: Path) -> Path:
    root = work / "root"
    for name in ("bin", "proc", "sys", "dev", "host", "lib/modules"):
        (root / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    if busybox is None:
        raise SystemExit("busybox is missing: apt-get install busybox-static")
    shutil.copy(busybox, root / "bin/busybox")
    (source,) = (kernel / "lib/modules").iterdir()
    subprocess.run(["/sbin/depmod", "-b", str(kernel.resolve()), source.name], check=True)
    target = root / "lib/modules" / source.name
    wanted = _with_dependencies(source / "modules.dep")
    for path in wanted:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / path, target / path)
    shutil.copy(source / "modules.dep", target / "modules.dep")
    init = root / "init"
    init.write_text(_INIT.format(modules=" ".join(MODULES)))
    init.chmod(0o755)
    image = work / "initramfs"
    names = "\n".join(str(path.relative_to(root)) for path in root.rglob("*"))
    with image.open("wb") as file:
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=root, stdout=file, check=True
        )
    return image


def _with_dependencies(table: Path) -> set[str]:
    """Paths of MODULES and of all that they need."""
    needs = {}
    for line in table.read_text().splitlines():
        path, _, others = line.partition(":")
        needs[path] = others.split()
    named = {Path(path).name.split(".")[0].replace("-", "_"): path for path in needs}
    found: set[str] = set()
    for module in MODULES:
        found |= {named[module], *needs[named[module]]}
    return found


def _disk(work: Path, command: Sequence[str]) -> Path:
    """An empty file system that holds the command as a script."""
    content = work / "disk-content"
    content.mkdir()
    environment = {
        name: os.environ[name]
        for name in os.environ
        if name.startswith(("EDGESEEK_", "PYTHON")) or name in ("PATH", "HOME", "LANG")
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines += ["export TMPDIR=/mnt", f"cd {shlex.quote(str(Path.cwd()))}", shlex.join(command)]
    (content / "command").write_text("\n".join(lines) + "\n")
    disk = work / "disk"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["/sbin/mkfs.ext4", "-q", "-F", "-d", str(content), str(disk)], check=True)
    return disk


def _boot(kernel: Path, image: Path, disk: Path, memory: str, timeout: float) -> int:
    (vmlinuz,) = (kernel / "boot").glob("vmlinuz-*")
    command = [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", memory),
        *("-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot"),
        *("-kernel", str(vmlinuz), "-initrd", str(image), "-append", "console=ttyS0 quiet panic=-1 psi=1"),
        *("-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"),
        *("-drive", f"file={disk},format=raw,if=virtio"),
    ]
    printed = b""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as machine:
        killer = _later(timeout, machine)
        if machine.stdout is not None:
            for line in machine.stdout:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
                printed = line if _EXIT.match(line) else printed
        killer.cancel()
    found = _EXIT.match(printed)
    return 125 if found is None else int(found[1])


def _later(seconds: float, machine: subprocess.Popen[bytes]) -> threading.Timer:
    timer = threading.Timer(seconds, machine.kill)
    timer.daemon = True
    timer.start()
    return timer


if __name__ == "__main__":
    raise SystemExit(main())
