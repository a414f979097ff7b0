"""Where this process's cgroups are: one list of folders per controller.

A controller lives either in a version 1 hierarchy of its own or in the version 2 tree, and on hybrid
systems some live here and some there, so each is looked up by itself: `/proc/self/cgroup` names the
group, `/proc/self/mountinfo` says where its hierarchy is mounted and which part of it is visible
(cgroups(7), proc(5)). Knows nothing of what a limit means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from edgeseek.settings import Settings


@dataclass(frozen=True)
class Group:
    """One cgroup on the way from this process's own up to the top of what is visible."""

    version: Literal[1, 2]
    #: Path as the user knows it, relative to the hierarchy's mount: `/user.slice`.
    name: str
    folder: Path

    def read(self, file: str) -> str | None:
        """Contents of one control file without the trailing newline, or None if it has none."""
        return read_text(self.folder / file)


@dataclass(frozen=True)
class _Mount:
    kind: str
    root: str
    point: str
    options: frozenset[str]


def read_text(path: Path) -> str | None:
    """The file's text, stripped; None where it is absent or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def groups_of(controller: str, settings: Settings) -> list[Group]:
    """The cgroups that govern this process for `controller`, its own first, then every ancestor.

    Empty where there are no cgroups, or none is mounted where we can see it.
    """
    mounts = list(_mounts(settings))
    unified: str | None = None
    for line in (read_text(settings.proc_root / "self/cgroup") or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        hierarchy, controllers, path = fields
        if controller in controllers.split(","):
            mount = next((m for m in mounts if m.kind == "cgroup" and controller in m.options), None)
            return [] if mount is None else _ancestors(1, mount, path, settings)
        if hierarchy == "0" and controllers == "":
            unified = path
    mount = next((m for m in mounts if m.kind == "cgroup2"), None)
    if unified is None or mount is None:
        return []
    return _ancestors(2, mount, unified, settings)


def unified_groups(settings: Settings) -> list[Group]:
    """The version 2 cgroups of this process, its own first, whether or not any controller lives there.

    On hybrid systems they have no memory controller, and pressure files all the same.
    """
    mount = next((m for m in _mounts(settings) if m.kind == "cgroup2"), None)
    for line in (read_text(settings.proc_root / "self/cgroup") or "").splitlines():
        if mount is not None and line.startswith("0::"):
            return _ancestors(2, mount, line.removeprefix("0::"), settings)
    return []


def _mounts(settings: Settings) -> Iterator[_Mount]:
    for line in (read_text(settings.proc_root / "self/mountinfo") or "").splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if dash and len(left) >= 6 and len(right) >= 3 and right[0] in ("cgroup", "cgroup2"):
            yield _Mount(right[0], _unescape(left[3]), _unescape(left[4]), frozenset(right[2].split(",")))


def _unescape(text: str) -> str:
    """Undo mountinfo's octal escapes of space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _ancestors(version: Literal[1, 2], mount: _Mount, path: str, settings: Settings) -> list[Group]:
    top = _below_sys_root(mount.point, settings)
    relative = _visible_part(mount.root, path)
    chain = [relative, *relative.parents]
    groups = [Group(version, f"/{part}" if str(part) != "." else "/", top / part) for part in chain]
    # A container may see the host's path in /proc/self/cgroup but only its own part of the hierarchy.
    return [group for group in groups if group.folder.is_dir()]


def _visible_part(root: str, path: str) -> PurePosixPath:
    """`path` relative to the part of the hierarchy that is mounted; `.` if it lies outside of it."""
    if ".." in PurePosixPath(path).parts:
        return PurePosixPath()
    try:
        return PurePosixPath(path).relative_to(PurePosixPath(root))
    except ValueError:
        return PurePosixPath()


def _below_sys_root(point: str, settings: Settings) -> Path:
    try:
        return settings.sys_root / PurePosixPath(point).relative_to("/sys")
    except ValueError:
        return Path(point)
