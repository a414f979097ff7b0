"""Pressure is found from PSI triggers, a v1 group's events, or by reading, whichever the kernel has."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgeseek.memory.cgroup import Group
from edgeseek.memory.polled import PsiTotals, ReclaimCounters
from edgeseek.memory.pressure import Level, PressureMonitor, watch_pressure
from edgeseek.memory.psi import open_trigger, psi_source
from edgeseek.memory.v1_pressure import v1_source
from edgeseek.settings import Settings
from tests.unit.memory.machine import HYBRID_V2_MOUNT, V1_MEMORY_MOUNT, V2_MOUNT, Machine

PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Kernel:
    """Takes triggers whose window it allows, and remembers what was written."""

    def __init__(self, *refused_windows: str, code: int = errno.EPERM) -> None:
        self.refused, self.code = refused_windows, code
        self.written: list[str] = []
        self.pipes: list[int] = []

    def open(self, _: Path, text: str) -> int:
        self.written.append(text)
        if text.split()[2] in self.refused:
            raise OSError(self.code, "refused")
        reader, writer = os.pipe()
        self.pipes.append(writer)
        return reader

    def close(self) -> None:
        for writer in self.pipes:
            os.close(writer)


def test_with_the_capability_fine_triggers_are_set() -> None:
    kernel = Kernel()
    source = psi_source(Path("memory.pressure"), "PSI of /app", kernel.open)
    assert source is not None
    # The newline is what /proc/pressure wants.
    assert kernel.written == ["some 100000 5000000\n", "some 1500000 5000000\n", "full 1500000 5000000\n"]
    assert source.name == "PSI of /app, triggers in windows of 5 s"
    assert [events for _, events in source.descriptors()] == [select.POLLPRI | select.POLLERR] * 3
    source.close()
    assert source.descriptors() == []
    kernel.close()


def test_without_it_windows_are_multiples_of_two_seconds() -> None:
    kernel = Kernel("5000000")
    source = psi_source(Path("memory.pressure"), "PSI", kernel.open)
    assert source is not None
    assert kernel.written[1:] == ["some 300000 2000000\n", "some 700000 2000000\n", "full 700000 2000000\n"]
    assert all(int(text.split()[2]) % 2_000_000 == 0 for text in kernel.written[1:])
    source.close()
    kernel.close()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP])
def test_an_old_kernel_refuses_all_and_nothing_stays_open(code: int) -> None:
    before = open_files()
    assert psi_source(Path("p"), "PSI", Kernel("5000000", "2000000", code=code).open) is None
    assert open_files() == before


def test_each_trigger_is_its_level_and_an_error_means_gone() -> None:
    kernel = Kernel()
    source = psi_source(Path("p"), "PSI", kernel.open)
    assert source is not None
    low, high, critical = (descriptor for descriptor, _ in source.descriptors())
    assert source.ready(low, select.POLLPRI) is Level.LOW
    assert source.ready(critical, select.POLLPRI) is Level.CRITICAL
    assert source.ready(high, select.POLLERR | select.POLLPRI) is Level.NONE
    assert [descriptor for descriptor, _ in source.descriptors()] == [low, critical]
    source.close()
    kernel.close()


class Scripted:
    """Reports what it is told to."""

    name = "scripted"

    def __init__(self) -> None:
        self.event, self.polled = Level.NONE, Level.NONE
        self.closed = 0

    def descriptors(self) -> Sequence[tuple[int, int]]:
        return [(7, select.POLLPRI)]

    def ready(self, descriptor: int, events: int, /) -> Level:
        assert (descriptor, events) == (7, select.POLLPRI)
        return self.event

    def poll(self, _: float, /) -> Level:
        return self.polled

    def close(self) -> None:
        self.closed += 1


def test_a_level_holds_for_a_while_and_the_highest_counts() -> None:
    clock, source, other = Clock(), Scripted(), Scripted()
    ready: list[tuple[int, int]] = []
    monitor = PressureMonitor([source, other], clock=clock, waiter=lambda _, __: ready, hold_s=4.0)
    assert monitor.wait(1.0) is Level.NONE
    other.polled, other.event = Level.LOW, Level.HIGH
    ready.append((7, select.POLLPRI))
    assert monitor.wait(1.0) is Level.HIGH
    ready.clear()
    clock.now += 3.9
    assert monitor.wait(1.0) is Level.HIGH
    clock.now += 0.2
    assert monitor.wait(1.0) is Level.LOW
    other.polled = Level.NONE
    clock.now += 4.0
    assert monitor.wait(1.0) is Level.NONE
    monitor.close()
    monitor.close()
    assert source.closed == other.closed == 1


def test_totals_give_the_share_of_the_time_between_two_readings(tmp_path: Path) -> None:
    file = tmp_path / "memory.pressure"
    file.write_text(PSI.format(5_000_000, 1_000_000))
    source = PsiTotals.of(file, "PSI")
    assert source is not None
    assert source.poll(10.0) is Level.NONE
    steps = [(149_999, 0, Level.NONE), (150_000, 0, Level.LOW), (350_000, 0, Level.HIGH)]
    steps += [(900_000, 350_000, Level.CRITICAL), (0, 0, Level.NONE)]
    some, full, now = 5_000_000, 1_000_000, 10.0
    for more_some, more_full, expected in steps:
        some, full, now = some + more_some, full + more_full, now + 1.0
        file.write_text(PSI.format(some, full))
        assert source.poll(now) is expected
        # Too soon to tell anything new.
        assert source.poll(now + 0.1) is expected
    assert PsiTotals.of(tmp_path / "nothing", "PSI") is None


def test_without_psi_stalls_and_what_is_left_are_counted(machine: Machine) -> None:
    machine.write(machine.proc, {"vmstat": "nr_free_pages 5\nallocstall_normal 3\nallocstall_movable 4"})
    source = ReclaimCounters(machine.proc)
    assert source.poll(0.0) is Level.NONE
    machine.write(machine.proc, {"vmstat": "allocstall_normal 3\nallocstall_movable 5"})
    assert source.poll(1.0) is Level.LOW
    assert source.poll(2.0) is Level.NONE
    machine.memory(available=40 << 20, total=1000 << 20)
    assert source.poll(3.0) is Level.HIGH
    machine.memory(available=15 << 20, total=1000 << 20)
    assert source.poll(4.0) is Level.CRITICAL


def test_a_v1_group_registers_an_eventfd_for_each_level(tmp_path: Path) -> None:
    (tmp_path / "memory.pressure_level").write_text("")
    (tmp_path / "cgroup.event_control").write_text("")
    source = v1_source(Group(1, "/app", tmp_path))
    assert source is not None
    written = (tmp_path / "cgroup.event_control").read_text()
    low, medium, critical = (descriptor for descriptor, _ in source.descriptors())
    words = written.replace("low", "low ").replace("medium", "medium ").split()
    level_file = words[1]
    assert words == [
        *(str(low), level_file, "low"),
        *(str(medium), level_file, "medium"),
        *(str(critical), level_file, "critical"),
    ]
    assert Path(f"/proc/self/fd/{level_file}").readlink().name == "memory.pressure_level"
    with PressureMonitor([source]) as monitor:
        assert monitor.wait(0.0) is Level.NONE
        os.eventfd_write(medium, 1)
        assert monitor.wait(5.0) is Level.HIGH
        os.eventfd_write(critical, 3)
        assert monitor.wait(5.0) is Level.CRITICAL


def test_a_v1_group_that_we_may_not_register_at_is_no_source(tmp_path: Path) -> None:
    before = open_files()
    assert v1_source(Group(1, "/app", tmp_path)) is None
    (tmp_path / "memory.pressure_level").write_text("")
    assert v1_source(Group(1, "/app", tmp_path)) is None
    assert open_files() == before


def names(machine: Machine) -> tuple[str, ...]:
    with watch_pressure(machine.settings) as monitor:
        return monitor.names


def test_a_v2_group_and_the_machine_are_both_watched(machine: Machine) -> None:
    machine.cgroup("0::/app", V2_MOUNT).group("app", {"memory.pressure": PSI.format(0, 0)})
    machine.write(machine.proc, {"pressure/memory": PSI.format(0, 0)})
    # A plain file takes any trigger.
    assert names(machine) == (
        "PSI of /app, triggers in windows of 5 s",
        "PSI of the machine, triggers in windows of 5 s",
    )


def test_on_a_hybrid_system_each_is_looked_up_where_it_lives(machine: Machine) -> None:
    machine.cgroup("4:memory:/app\n0::/unit", HYBRID_V2_MOUNT, V1_MEMORY_MOUNT)
    machine.group("unified/unit", {"memory.pressure": PSI.format(0, 0)})
    machine.group("memory/app", {"memory.pressure_level": "", "cgroup.event_control": ""})
    assert names(machine) == ("PSI of /unit, triggers in windows of 5 s", "pressure_level of /app")


def test_a_kernel_without_psi_and_v1_groups_is_polled(machine: Machine) -> None:
    assert names(machine) == ("/proc/vmstat and MemAvailable, polled",)


def test_this_kernel_takes_a_trigger_without_privileges() -> None:
    file = Path("/proc/pressure/memory")
    if not file.exists():
        pytest.skip("this kernel has no PSI")
    try:
        descriptor = open_trigger(file, "some 300000 2000000\n")
    except PermissionError:
        pytest.skip("this kernel wants CAP_SYS_RESOURCE for triggers (older than 6.4 and 6.1.42)")
    os.close(descriptor)
    source = psi_source(file, "PSI")
    assert source is not None
    # A window of 5 s, or else of 2.
    assert "triggers in windows of" in source.name
    source.close()


def test_the_real_machine_has_something_to_watch(tmp_path: Path) -> None:
    with watch_pressure(Settings(cache_dir=tmp_path)) as monitor:
        assert monitor.names
        assert monitor.wait(0.0) in Level
