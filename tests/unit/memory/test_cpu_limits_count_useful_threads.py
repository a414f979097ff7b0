"""Threads are counted by affinity, physical cores, the big cluster and the cgroup quota."""

from __future__ import annotations

import pytest

from edgeseek.memory.cpus import CpuLimits, parse_cpu_list, usable_cpus
from tests.unit.memory.machine import V1_CPU_MOUNT, V2_MOUNT, Machine


def test_all_cores_of_a_plain_machine(machine: Machine) -> None:
    machine.cpus(4)
    assert usable_cpus(machine.settings) == CpuLimits(4, (0, 1, 2, 3), "online CPUs")


def test_the_affinity_mask_decides(machine: Machine) -> None:
    machine.cpus(8, allowed="1-2,6")
    assert usable_cpus(machine.settings) == CpuLimits(3, (1, 2, 6), "affinity mask")


def test_a_mask_of_cpus_that_are_not_online_does_not_count(machine: Machine) -> None:
    machine.cpus(4, allowed="0-127")
    assert usable_cpus(machine.settings) == CpuLimits(4, (0, 1, 2, 3), "online CPUs")


@pytest.mark.parametrize(
    ("quota", "count", "threads"),
    [
        ("400000 100000", 8, 4),
        ("50000 100000", 8, 1),
        ("765000 100000", 96, 7),
        ("max 100000", 8, 8),
        ("1600000 100000", 8, 8),
    ],
)
def test_version_2_quota(machine: Machine, quota: str, count: int, threads: int) -> None:
    machine.cpus(count).cgroup("0::/app", V2_MOUNT).group("app", {"cpu.max": quota})
    found = usable_cpus(machine.settings)
    assert found.threads == threads
    assert found.decided_by == ("cgroup cpu.max of /app" if threads < count else "online CPUs")


def test_the_least_quota_of_all_ancestors_decides(machine: Machine) -> None:
    machine.cpus(16).cgroup("0::/a/b", V2_MOUNT)
    machine.group("a/b", {"cpu.max": "800000 100000"}).group("a", {"cpu.max": "150000 50000"})
    assert usable_cpus(machine.settings).threads == 3
    assert usable_cpus(machine.settings).decided_by == "cgroup cpu.max of /a"


@pytest.mark.parametrize(("quota", "threads"), [("250000", 2), ("-1", 8), ("1000", 1)])
def test_version_1_quota(machine: Machine, quota: str, threads: int) -> None:
    machine.cpus(8).cgroup("3:cpu,cpuacct:/app", V1_CPU_MOUNT)
    machine.group("cpu,cpuacct/app", {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000"})
    assert usable_cpus(machine.settings).threads == threads


def test_hyper_threads_of_one_core_count_once(machine: Machine) -> None:
    machine.cpus(8, siblings={cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)})
    assert usable_cpus(machine.settings) == CpuLimits(4, (0, 1, 2, 3), "physical cores")


def test_neighbouring_hyper_threads_count_once_too(machine: Machine) -> None:
    machine.cpus(4, siblings={0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, allowed="1-3")
    assert usable_cpus(machine.settings) == CpuLimits(2, (1, 2), "physical cores")


def test_only_the_big_cluster_of_an_rk3588_is_used(machine: Machine) -> None:
    capacity = {0: 530, 1: 530, 2: 530, 3: 530, 4: 1024, 5: 1024, 6: 991, 7: 991}
    machine.cpus(8, capacity=capacity)
    assert usable_cpus(machine.settings) == CpuLimits(4, (4, 5, 6, 7), "big cluster (cpu_capacity)")


def test_little_cores_are_used_when_the_mask_leaves_no_other(machine: Machine) -> None:
    machine.cpus(8, allowed="0-3", capacity={cpu: 530 if cpu < 4 else 1024 for cpu in range(8)})
    assert usable_cpus(machine.settings) == CpuLimits(4, (0, 1, 2, 3), "affinity mask")


def test_a_forced_number_wins_over_every_limit(machine: Machine) -> None:
    machine.cpus(2)
    found = usable_cpus(machine.settings.with_changes(threads=6))
    assert (found.threads, found.decided_by) == (6, "EDGESEEK_THREADS")


def test_without_proc_and_sys_one_thread_is_started(machine: Machine) -> None:
    assert usable_cpus(machine.settings) == CpuLimits(1, (0,), "online CPUs")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ()), ("0", (0,)), ("0-3", (0, 1, 2, 3)), ("0-1,8,10-11\n", (0, 1, 8, 10, 11)), ("x,2-,3", (3,))],
)
def test_cpu_lists(text: str, expected: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == expected
