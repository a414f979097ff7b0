"""Builds /proc and /sys trees below tmp_path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgeseek.settings import Settings

GIB = 1 << 30

#: One line per kind of mount, as in /proc/self/mountinfo.
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V1_CPU_MOUNT = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"
HYBRID_V2_MOUNT = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw"
OTHER_MOUNT = "23 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw"


class Machine:
    """A pretended machine; every method writes files and returns the machine."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.sys = root / "sys"
        self.settings = Settings(cache_dir=root / "cache", proc_root=self.proc, sys_root=self.sys)
        self.memory(available=6 * GIB, total=8 * GIB)

    def write(self, base: Path, files: Mapping[str, str]) -> Machine:
        for name, text in files.items():
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return self

    def memory(self, *, available: int, total: int) -> Machine:
        lines = [f"MemTotal:       {total // 1024} kB", "MemFree:        1024 kB"]
        lines.append(f"MemAvailable:   {available // 1024} kB")
        return self.write(self.proc, {"meminfo": "\n".join(lines)})

    def cgroup(self, lines: str, *mounts: str) -> Machine:
        return self.write(
            self.proc, {"self/cgroup": lines, "self/mountinfo": "\n".join([OTHER_MOUNT, *mounts])}
        )

    def group(self, folder: str, files: Mapping[str, str]) -> Machine:
        """Control files of one cgroup; `folder` is relative to /sys/fs/cgroup."""
        return self.write(self.sys / "fs/cgroup" / folder, files)

    def cpus(
        self,
        count: int,
        *,
        allowed: str | None = None,
        siblings: Mapping[int, str] | None = None,
        capacity: Mapping[int, int] | None = None,
    ) -> Machine:
        span = f"0-{count - 1}"
        self.write(self.proc, {"self/status": f"Name:\tpython3\nCpus_allowed_list:\t{allowed or span}"})
        files = {"online": span}
        for cpu in range(count):
            files[f"cpu{cpu}/topology/thread_siblings_list"] = (siblings or {}).get(cpu, str(cpu))
            if capacity is not None:
                files[f"cpu{cpu}/cpu_capacity"] = str(capacity[cpu])
        return self.write(self.sys / "devices/system/cpu", files)
