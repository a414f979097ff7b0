"""The file operations that a package writer performs, as one small surface.

A writer takes a `Files`, so that what it does to a disk, and in which order, can be recorded, replayed
and made to fail. `OsFiles` is the real one. Knows nothing of packages.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class WritableFile(Protocol):
    """A new file that is written front to back."""

    def write(self, data: memoryview | bytes) -> None:
        """Append all of `data`."""
        ...

    def sync(self) -> None:
        """Return once the contents would survive a power cut."""
        ...

    def close(self) -> None:
        """Give the file back; a second call does nothing."""
        ...


class Files(Protocol):
    """Each method raises OSError as the operating system does."""

    def exists(self, path: Path) -> bool:
        """Whether anything has that name, a dangling link included."""
        ...

    def names(self, folder: Path) -> list[str]:
        """Names in `folder`, sorted."""
        ...

    def free_bytes(self, folder: Path) -> int:
        """Bytes that this user may still write to the file system of `folder`."""
        ...

    def make_folder(self, path: Path) -> None:
        """Create one folder; FileExistsError if there is one."""
        ...

    def create(self, path: Path) -> WritableFile:
        """Create a file for writing; FileExistsError if there is one."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Return once the names in `path` would survive a power cut."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Move a folder to a name that is free, atomically."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and what is in it."""
        ...

    def lock_folder(self, path: Path) -> Callable[[], None] | None:
        """Lock a folder until the returned function is called or the process ends; None if it is locked."""
        ...


class OsFile:
    """A `WritableFile` on a descriptor, unbuffered."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, data: memoryview | bytes) -> None:
        """Append all of `data`."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def sync(self) -> None:
        """fsync."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsFiles:
    """The operating system's files."""

    def exists(self, path: Path) -> bool:
        """Whether anything has that name, a dangling link included."""
        return os.path.lexists(path)

    def names(self, folder: Path) -> list[str]:
        """Names in `folder`, sorted."""
        return sorted(entry.name for entry in folder.iterdir())

    def free_bytes(self, folder: Path) -> int:
        """Free bytes for unprivileged users, from statvfs."""
        return shutil.disk_usage(folder).free

    def make_folder(self, path: Path) -> None:
        """mkdir."""
        path.mkdir()

    def create(self, path: Path) -> OsFile:
        """Open exclusively for writing."""
        return OsFile(path)

    def sync_folder(self, path: Path) -> None:
        """fsync of the folder itself."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Atomic rename; a non-empty folder at `target` raises."""
        source.rename(target)

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and what is in it."""
        shutil.rmtree(path)

    def lock_folder(self, path: Path) -> Callable[[], None] | None:
        """flock on the folder, which the kernel drops with the process, however it ends."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed the folder between the two calls.
            current = path.stat()
            if os.fstat(descriptor).st_ino != current.st_ino:
                raise FileNotFoundError(path)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return lambda: os.close(descriptor)


def make_folders(folder: Path, files: Files) -> None:
    """Create `folder` and what it lies in, where they are missing, each with its name synced."""
    missing = []
    while not files.exists(folder):
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        try:
            files.make_folder(path)
        except FileExistsError:
            continue
        files.sync_folder(path.parent)
