"""Puts this process into a version 2 cgroup with limits of its own, or says how systemd would.

`memory.high` slows the group down and reclaims above it and never kills; `memory.max` is where the kernel
kills, with `memory.oom.group` the whole group at once; `oom_score_adj` says who goes first when the whole
machine is out of memory. Each is set by itself and what could not be is named: nothing is pretended.
Writes below `settings.sys_root` and `settings.proc_root` only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgeseek.errors import UsageError
from edgeseek.memory.cgroup import Group, groups_of, read_text, unified_groups
from edgeseek.settings import Settings

#: A server is what should go before the shell or the supervisor, and after a browser.
OOM_SCORE_ADJ = 200


@dataclass(frozen=True)
class MemoryBounds:
    """Limits in bytes; None for none. Raises UsageError where they make no sense together."""

    high: int | None = None
    maximum: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return self.high is not None or self.maximum is not None

    def __post_init__(self) -> None:
        for option, size in (("--memory-high", self.high), ("--memory-max", self.maximum)):
            if size is not None and size < 1 << 20:
                raise UsageError(f"{option} is {size} bytes; give 1 MiB or more")
        if self.high is not None and self.maximum is not None and self.high > self.maximum:
            raise UsageError(
                f"--memory-high ({self.high} bytes) is above --memory-max ({self.maximum}): the kernel would "
                "kill before it slows down; give less"
            )


@dataclass(frozen=True)
class Placement:
    """What became of the wish: `enforced` and `refused` are (what, why or value); `folder` the new group."""

    folder: Path | None
    enforced: tuple[tuple[str, str], ...]
    refused: tuple[tuple[str, str], ...]
    #: Lines for the [Service] section of a unit that does all of it.
    unit_lines: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """For the log: what holds, what does not and why, and what would make it hold."""
        told = [f"{what} = {value}" for what, value in self.enforced]
        told += [f"{what} could not be set: {why}" for what, why in self.refused]
        if self.refused:
            told.append("a systemd unit with these lines does it:")
            told += [f"  {line}" for line in self.unit_lines]
        return told


def place(
    bounds: MemoryBounds, settings: Settings, *, pid: int | None = None, name: str = "edgeseek"
) -> Placement:
    """Move this process into a group `NAME-PID` below its own, with `bounds`, and set its OOM score.

    Asks for nothing twice: what the kernel or a permission refuses is named and the rest goes on.
    """
    pid = os.getpid() if pid is None else pid
    enforced: list[tuple[str, str]] = []
    refused: list[tuple[str, str]] = []
    _attempt(
        "oom_score_adj",
        str(OOM_SCORE_ADJ),
        lambda: (settings.proc_root / "self/oom_score_adj").write_text(str(OOM_SCORE_ADJ)),
        enforced,
        refused,
    )
    folder = None
    wanted = _wanted(bounds)
    if wanted:
        found = _new_group(settings, f"{name}-{pid}", pid)
        if isinstance(found, str):
            refused += [(file, found) for file in wanted]
        else:
            folder = found
            for file, value in wanted.items():
                path = folder / file
                _attempt(file, value, lambda p=path, v=value: p.write_text(v), enforced, refused)  # type: ignore[misc]
    return Placement(folder, tuple(enforced), tuple(refused), unit_lines(bounds))


def unit_lines(bounds: MemoryBounds) -> tuple[str, ...]:
    """Lines for the [Service] section of a unit that set `bounds`; see systemd.resource-control(5)."""
    lines = [f"OOMScoreAdjust={OOM_SCORE_ADJ}"]
    if bounds.high is not None:
        lines.append(f"MemoryHigh={bounds.high}")
    if bounds.maximum is not None:
        lines += [f"MemoryMax={bounds.maximum}", "OOMPolicy=kill"]
    return tuple(lines)


def leave(placement: Placement, *, pid: int | None = None) -> None:
    """Go back to the group above and remove the one that was made; does nothing where none was."""
    if placement.folder is None:
        return
    try:
        (placement.folder.parent / "cgroup.procs").write_text(str(os.getpid() if pid is None else pid))
        placement.folder.rmdir()
    except OSError:
        # An empty group costs nothing; whoever made the parent removes it too.
        return


def _wanted(bounds: MemoryBounds) -> dict[str, str]:
    wanted = {}
    if bounds.high is not None:
        wanted["memory.high"] = str(bounds.high)
    if bounds.maximum is not None:
        wanted |= {"memory.max": str(bounds.maximum), "memory.oom.group": "1"}
    return wanted


def _new_group(settings: Settings, name: str, pid: int) -> Path | str:
    """The folder of the new group that the process is in, or why there is none."""
    unified = unified_groups(settings)
    governing = groups_of("memory", settings)
    if not unified:
        return "there is no cgroup v2 hierarchy here"
    if governing and governing[0].version == 1:
        return "the memory controller is a version 1 hierarchy here, without these files"
    parent = _parent(unified, pid)
    if isinstance(parent, str):
        return parent
    folder = parent / name
    try:
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").write_text(str(pid))
        if "memory" not in _words(parent / "cgroup.subtree_control"):
            # Allowed now that the group has no members of its own any more.
            (parent / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return folder


def _parent(unified: list[Group], pid: int) -> Path | str:
    """The group to make one in: this process's own where it lives there alone, else the nearest that may.

    A group with members cannot hand controllers down ("no internal processes", cgroups(7)).
    """
    own = unified[0]
    alone = _words(own.folder / "cgroup.procs") == [str(pid)]
    if alone and "memory" in _words(own.folder / "cgroup.controllers"):
        return own.folder
    for group in unified:
        if "memory" in _words(group.folder / "cgroup.subtree_control"):
            return group.folder
    names = ", ".join(group.name for group in unified)
    return f"no group of {names} hands the memory controller down (Delegate=yes in the unit does)"


def _words(path: Path) -> list[str]:
    return (read_text(path) or "").split()


def _attempt(
    what: str,
    value: str,
    write: Callable[[], object],
    enforced: list[tuple[str, str]],
    refused: list[tuple[str, str]],
) -> None:
    try:
        write()
    except OSError as error:
        refused.append((what, error.strerror or str(error)))
    else:
        enforced.append((what, value))
