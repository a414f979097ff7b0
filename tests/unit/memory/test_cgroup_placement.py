"""A process gets a v2 group with limits of its own where it may, and is told what could not be enforced."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeseek.errors import UsageError
from edgeseek.memory.cgroup_placement import MemoryBounds, leave, place, unit_lines
from tests.unit.memory.machine import GIB, HYBRID_V2_MOUNT, V1_MEMORY_MOUNT, V2_MOUNT, Machine

BOUNDS = MemoryBounds(high=3 * GIB, maximum=4 * GIB)
SET = (
    ("oom_score_adj", "200"),
    ("memory.high", str(3 * GIB)),
    ("memory.max", str(4 * GIB)),
    ("memory.oom.group", "1"),
)


@pytest.fixture
def unit(machine: Machine) -> Machine:
    """A delegated unit that process 42 lives in alone."""
    machine.write(machine.proc, {"self/oom_score_adj": "0"})
    machine.cgroup("0::/system.slice/serve.service", V2_MOUNT)
    machine.group("system.slice", {"cgroup.subtree_control": "cpu memory"})
    files = {"cgroup.procs": "42", "cgroup.controllers": "cpu memory", "cgroup.subtree_control": ""}
    return machine.group("system.slice/serve.service", files)


def folder(machine: Machine, name: str) -> Path:
    return machine.sys / "fs/cgroup" / name


def test_alone_in_a_delegated_unit_the_group_is_made_inside(unit: Machine) -> None:
    placed = place(BOUNDS, unit.settings, pid=42)
    own = folder(unit, "system.slice/serve.service")
    assert placed.folder == own / "edgeseek-42"
    assert (placed.enforced, placed.refused) == (SET, ())
    assert (placed.folder / "cgroup.procs").read_text() == "42"
    assert (own / "cgroup.subtree_control").read_text() == "+memory"
    assert (placed.folder / "memory.high").read_text() == str(3 * GIB)
    assert (unit.proc / "self/oom_score_adj").read_text() == "200"
    assert placed.lines == [f"{what} = {value}" for what, value in SET]


def test_with_company_it_is_made_beside_the_own_group(unit: Machine) -> None:
    (folder(unit, "system.slice/serve.service") / "cgroup.procs").write_text("41\n42\n")
    placed = place(BOUNDS, unit.settings, pid=42)
    assert placed.folder == folder(unit, "system.slice/edgeseek-42")
    assert placed.refused == ()


def test_where_no_group_hands_the_controller_down_the_unit_lines_are_told(unit: Machine) -> None:
    (folder(unit, "system.slice/serve.service") / "cgroup.procs").write_text("41\n42\n")
    (folder(unit, "system.slice") / "cgroup.subtree_control").write_text("cpu")
    placed = place(BOUNDS, unit.settings, pid=42)
    assert placed.folder is None
    assert placed.enforced == SET[:1]
    assert [what for what, _ in placed.refused] == ["memory.high", "memory.max", "memory.oom.group"]
    assert "Delegate=yes" in placed.refused[0][1]
    assert placed.lines[-5:] == [
        "a systemd unit with these lines does it:",
        "  OOMScoreAdjust=200",
        f"  MemoryHigh={3 * GIB}",
        f"  MemoryMax={4 * GIB}",
        "  OOMPolicy=kill",
    ]


def test_a_version_1_controller_is_said_to_lack_the_files(machine: Machine) -> None:
    machine.write(machine.proc, {"self/oom_score_adj": "0"})
    machine.cgroup("4:memory:/app\n0::/app", HYBRID_V2_MOUNT, V1_MEMORY_MOUNT)
    machine.group("unified/app", {"cgroup.procs": "42"}).group("memory/app", {"memory.limit_in_bytes": "1"})
    placed = place(BOUNDS, machine.settings, pid=42)
    assert placed.folder is None
    assert all("version 1 hierarchy" in why for _, why in placed.refused)


def test_what_the_kernel_refuses_is_named_and_the_rest_is_set(unit: Machine) -> None:
    target = folder(unit, "system.slice/serve.service") / "edgeseek-42"
    # Writing to a folder fails, as a control file that the kernel does not have does.
    (target / "memory.oom.group").mkdir(parents=True)
    placed = place(BOUNDS, unit.settings, pid=42)
    assert placed.enforced == SET[:3]
    assert placed.refused == (("memory.oom.group", "Is a directory"),)


def test_without_bounds_only_the_score_is_set(unit: Machine) -> None:
    placed = place(MemoryBounds(), unit.settings, pid=42)
    assert (placed.folder, placed.enforced, placed.refused) == (None, SET[:1], ())


def test_leaving_goes_back_to_the_group_above(unit: Machine) -> None:
    (folder(unit, "system.slice/serve.service") / "cgroup.procs").write_text("41\n42\n")
    placed = place(BOUNDS, unit.settings, pid=42)
    leave(placed, pid=42)
    assert (folder(unit, "system.slice") / "cgroup.procs").read_text() == "42"
    leave(place(MemoryBounds(), unit.settings, pid=42), pid=42)


@pytest.mark.parametrize(
    ("high", "maximum", "message"),
    [(5, None, "--memory-high is 5 bytes"), (None, 0, "--memory-max is 0"), (4 * GIB, 3 * GIB, "is above")],
)
def test_senseless_bounds_are_refused(high: int | None, maximum: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MemoryBounds(high, maximum)


def test_the_unit_lines_are_those_of_what_is_wanted() -> None:
    assert unit_lines(MemoryBounds(high=GIB)) == ("OOMScoreAdjust=200", f"MemoryHigh={GIB}")
