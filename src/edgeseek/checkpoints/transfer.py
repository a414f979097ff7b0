"""What both kinds of download share: progress, one download per folder at a time, storage errors.

Owns the rules that a finished file appears under its name only when it is complete, verified and synced,
and that a full disk is reported as one. Knows nothing of where bytes come from.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from edgeseek.errors import StorageError


class Progress(Protocol):
    """Called as bytes arrive; `total` is None where it is not known."""

    def __call__(self, done: int, total: int | None) -> None: ...


class DownloadSettings(Protocol):
    """The part of `edgeseek.settings.Settings` that a download needs."""

    @property
    def hf_endpoint(self) -> str:
        """Base URL of the hub, without a trailing slash."""
        ...

    @property
    def hf_token(self) -> str | None:
        """Access token for gated or private repositories."""
        ...


def no_progress(done: int, total: int | None) -> None:
    """A Progress that shows nothing."""


def storage_error(path: Path, error: OSError) -> StorageError:
    """The StorageError for an OSError met while writing `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"no space left for {path}; free some and run the same command again")
    return StorageError(f"cannot write {path}: {error.strerror or error}")


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise StorageError with both numbers if the disk of `folder` has fewer than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StorageError(
            f"{what} needs {needed / 1e6:.0f} MB in {folder} and {free / 1e6:.0f} MB are free; "
            f"free some space or set EDGESEEK_HOME to a folder on a larger disk"
        )


def finish(partial: Path, target: Path) -> None:
    """Give a complete file its name, so that a crash leaves either the whole file or none."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(target)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Make `folder` and hold its lock: a second process waits until the first has downloaded.

    Raises StorageError if the folder cannot be made.
    """
    lock = _locked(folder)
    while lock is None:
        lock = _locked(folder)
    try:
        yield
    finally:
        os.close(lock)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the lock, or None if the folder was removed while this waited for it."""
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise storage_error(folder, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = os.fstat(lock)
        current = path.stat()
        if (held.st_dev, held.st_ino) == (current.st_dev, current.st_ino):
            return lock
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None
