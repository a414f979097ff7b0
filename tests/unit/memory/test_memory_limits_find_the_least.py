"""The least of MemAvailable, every cgroup above and RLIMIT_AS is found, and named."""

from __future__ import annotations

import pytest

from edgeseek.errors import RuntimeFailure
from edgeseek.memory.limits import memory_available, peak_rss
from tests.unit.memory.machine import GIB, HYBRID_V2_MOUNT, V1_MEMORY_MOUNT, V2_MOUNT, Machine

V2_FILES = {
    "memory.max": "4294967296",
    "memory.high": "max",
    "memory.current": "3758096384",
    "memory.stat": "anon 1000\ninactive_anon 5\nactive_file 7\ninactive_file 2684354560\n",
}


def test_version_2_counts_inactive_file_pages_as_free(machine: Machine) -> None:
    machine.cgroup("0::/app", V2_MOUNT).group("app", V2_FILES)
    found = memory_available(machine.settings)
    assert found.available == 3221225472
    assert found.decided_by == "cgroup memory.max of /app"
    assert found.deciding.capacity == 4294967296


def test_mem_available_decides_when_the_groups_have_no_limit(machine: Machine) -> None:
    machine.cgroup("0::/app", V2_MOUNT).group("app", {**V2_FILES, "memory.max": "max"})
    found = memory_available(machine.settings)
    assert (found.available, found.decided_by) == (6 * GIB, "MemAvailable")
    assert len(found.limits) == 1


def test_mem_available_decides_when_it_is_less_than_the_group_leaves(machine: Machine) -> None:
    machine.memory(available=1 * GIB, total=8 * GIB).cgroup("0::/app", V2_MOUNT).group("app", V2_FILES)
    assert memory_available(machine.settings).available == 1 * GIB


def test_memory_high_counts_as_a_limit_of_its_own(machine: Machine) -> None:
    machine.cgroup("0::/app", V2_MOUNT).group("app", {**V2_FILES, "memory.high": "2147483648"})
    found = memory_available(machine.settings)
    assert (found.available, found.decided_by) == (1073741824, "cgroup memory.high of /app")


def test_an_ancestor_can_decide(machine: Machine) -> None:
    machine.cgroup("0::/slice/unit/app", V2_MOUNT).group("slice/unit/app", V2_FILES)
    machine.group("slice/unit", {**V2_FILES, "memory.max": "max"})
    machine.group("slice", {"memory.max": "2000000000", "memory.current": "500000000", "memory.stat": ""})
    found = memory_available(machine.settings)
    assert (found.available, found.decided_by) == (1500000000, "cgroup memory.max of /slice")


def test_a_group_over_its_limit_leaves_nothing_and_not_less(machine: Machine) -> None:
    files = {"memory.max": "1000", "memory.current": "5000", "memory.stat": "inactive_file 10"}
    machine.cgroup("0::/app", V2_MOUNT).group("app", files)
    assert memory_available(machine.settings).available == 0


def test_more_reclaimable_than_used_leaves_the_limit_and_not_more(machine: Machine) -> None:
    files = {"memory.max": "1000", "memory.current": "50", "memory.stat": "inactive_file 90"}
    machine.cgroup("0::/app", V2_MOUNT).group("app", files)
    assert memory_available(machine.settings).available == 1000


V1_FILES = {
    "memory.limit_in_bytes": "4294967296",
    "memory.usage_in_bytes": "3758096384",
    "memory.use_hierarchy": "1",
    "memory.stat": "inactive_file 1\ntotal_inactive_file 2684354560",
}


def test_version_1_uses_the_hierarchical_figures(machine: Machine) -> None:
    machine.cgroup("4:memory:/docker/abc\n1:cpu:/", V1_MEMORY_MOUNT).group("memory/docker/abc", V1_FILES)
    found = memory_available(machine.settings)
    assert (found.available, found.decided_by) == (
        3221225472,
        "cgroup memory.limit_in_bytes of /docker/abc",
    )


@pytest.mark.parametrize("value", [2**63 - 1, 2**63 - 4096, 2**63 - 65536])
def test_version_1_numbers_that_mean_no_limit(machine: Machine, value: int) -> None:
    files = {**V1_FILES, "memory.limit_in_bytes": str(value)}
    machine.cgroup("4:memory:/", V1_MEMORY_MOUNT).group("memory", files)
    assert memory_available(machine.settings).decided_by == "MemAvailable"
    assert len(memory_available(machine.settings).limits) == 1


def test_version_1_just_below_no_limit_is_a_limit(machine: Machine) -> None:
    files = {**V1_FILES, "memory.limit_in_bytes": str(2**63 - 65537)}
    machine.cgroup("4:memory:/", V1_MEMORY_MOUNT).group("memory", files)
    assert len(memory_available(machine.settings).limits) == 2


@pytest.mark.parametrize(("hierarchy", "expected"), [("1", 1000), ("0", 3221225472)])
def test_a_version_1_ancestor_counts_only_with_use_hierarchy(
    machine: Machine, hierarchy: str, expected: int
) -> None:
    machine.cgroup("4:memory:/a/b", V1_MEMORY_MOUNT).group("memory/a/b", V1_FILES)
    parent = {**V1_FILES, "memory.limit_in_bytes": "1000", "memory.usage_in_bytes": "0"}
    machine.group("memory/a", {**parent, "memory.use_hierarchy": hierarchy})
    assert memory_available(machine.settings).available == expected


def test_on_a_hybrid_system_the_memory_controller_is_taken_from_version_1(machine: Machine) -> None:
    machine.cgroup("4:memory:/app\n0::/app", HYBRID_V2_MOUNT, V1_MEMORY_MOUNT)
    machine.group("memory/app", V1_FILES)
    machine.group("unified/app", {"memory.max": "1", "memory.pressure": "some avg10=0.00"})
    assert memory_available(machine.settings).available == 3221225472


def test_on_a_hybrid_system_memory_may_also_live_in_version_2(machine: Machine) -> None:
    machine.cgroup("1:cpu:/app\n0::/app", HYBRID_V2_MOUNT).group("unified/app", V2_FILES)
    assert memory_available(machine.settings).available == 3221225472


def test_a_container_that_sees_the_hosts_path_uses_the_part_it_has_mounted(machine: Machine) -> None:
    mount = V1_MEMORY_MOUNT.replace("0:32 / ", "0:32 /docker/abc ")
    machine.cgroup("4:memory:/docker/abc", mount).group("memory", V1_FILES)
    assert memory_available(machine.settings).available == 3221225472


@pytest.mark.parametrize("path", ["/docker/abc/not/here", "/../../outside"])
def test_a_group_that_is_not_visible_falls_back_to_what_is(machine: Machine, path: str) -> None:
    machine.cgroup(f"0::{path}", V2_MOUNT).group(".", V2_FILES)
    assert memory_available(machine.settings).available == 3221225472


def test_a_mount_point_with_a_space_is_unescaped(machine: Machine) -> None:
    mount = V2_MOUNT.replace("/sys/fs/cgroup", r"/sys/fs/my\040cgroup")
    machine.cgroup("0::/app", mount).group("../my cgroup/app", V2_FILES)
    assert memory_available(machine.settings).available == 3221225472


def test_the_address_space_limit_counts_less_what_is_mapped_already(machine: Machine) -> None:
    limits = (
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max cpu time              unlimited            unlimited            seconds\n"
        "Max address space         2147483648           unlimited            bytes"
    )
    machine.write(machine.proc, {"self/limits": limits, "self/status": "VmSize:\t  524288 kB"})
    found = memory_available(machine.settings)
    assert (found.available, found.decided_by) == (1610612736, "RLIMIT_AS (ulimit -v)")


def test_an_unlimited_address_space_is_no_limit(machine: Machine) -> None:
    machine.write(
        machine.proc, {"self/limits": "Max address space         unlimited            unlimited   bytes"}
    )
    assert len(memory_available(machine.settings).limits) == 1


def test_an_old_kernel_without_mem_available_is_estimated(machine: Machine) -> None:
    text = "MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 300 kB"
    machine.write(machine.proc, {"meminfo": text})
    assert memory_available(machine.settings).available == 420 * 1024


def test_no_proc_is_an_error_that_says_so(machine: Machine) -> None:
    (machine.proc / "meminfo").unlink()
    with pytest.raises(RuntimeFailure, match=r"meminfo does not say .* is /proc mounted\?"):
        memory_available(machine.settings)


def test_peak_rss_is_vm_hwm(machine: Machine) -> None:
    assert peak_rss(machine.settings) is None
    machine.write(machine.proc, {"self/status": "VmPeak:\t  900 kB\nVmHWM:\t  512 kB\nVmRSS:\t  400 kB"})
    assert peak_rss(machine.settings) == 512 * 1024
