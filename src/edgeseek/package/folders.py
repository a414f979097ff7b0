"""Package folders that replace each other or go, so that a crash leaves the old package or the new one.

A replacement is written whole beside its target, as `.NAME.new`. The target becomes `.NAME.old`, the
replacement takes its name, and the old one is removed; one that is only removed becomes `.NAME.old` too, so
that it is gone at once. Whatever interrupts this, `settle` ends it. The caller holds the source's lock.
Knows nothing of what is inside.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeseek.checkpoints.transfer import storage_error
from edgeseek.package.files import Files

_UNSETTLED = re.compile(r"\.(?P<name>.+)\.(?:new|old)")


def replacement(target: Path) -> Path:
    """Where the package that will replace `target` is written."""
    return target.with_name(f".{target.name}.new")


def settle(target: Path, files: Files) -> None:
    """Give the replacement of `target`, if there is one, its name, and remove what it replaced.

    Raises StorageError.
    """
    new, old = replacement(target), _outgoing(target)
    with translated(target):
        if files.exists(new):
            if files.exists(target):
                _clear(old, files)
                files.rename(target, old)
            files.rename(new, target)
            files.sync_folder(target.parent)
        _clear(old, files)


def remove(target: Path, files: Files) -> None:
    """Remove the package `target`, if it is there. Raises StorageError."""
    old = _outgoing(target)
    with translated(target):
        _clear(old, files)
        if files.exists(target):
            files.rename(target, old)
            # Nothing inside may be gone while the folder still has its name.
            files.sync_folder(target.parent)
            _clear(old, files)


def unsettled(names: Iterable[str]) -> set[str]:
    """Names of the packages that an interrupted replacement or removal has left, of a folder's `names`."""
    found = (_UNSETTLED.fullmatch(name) for name in names)
    return {match["name"] for match in found if match is not None}


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None) -> Iterator[bool]:
    """Hold the lock file `path`, across processes; true inside once it is held.

    Where another holds it, `waiting` is called and then waited; without one, false is given at once.
    Raises StorageError where the file cannot be made.
    """
    with translated(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is None:
                yield False
                return
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield True
    finally:
        os.close(descriptor)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """OSErrors as StorageErrors that name `path`."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


def _outgoing(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def _clear(folder: Path, files: Files) -> None:
    if files.exists(folder):
        files.remove_tree(folder)
