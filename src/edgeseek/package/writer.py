"""Writes a package so that it exists whole or not at all.

Everything goes to a folder beside the target, is synced, renamed to the target, and the parent folder is
synced. The temporary folder is removed on any exception; one that a killed writer left is removed by the
next writer in the same place. Knows nothing of where the weights come from.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from edgeseek.errors import StorageError
from edgeseek.package.container import Container
from edgeseek.package.files import Files, WritableFile, make_folders
from edgeseek.package.manifest import MANIFEST_NAME, WEIGHTS_NAME

#: Room for the manifest and the text files besides the weights, for the check of free space.
_TEXT_ROOM = 32 << 20
#: A writer's folder: a dot, the target's name, the process id, a random part.
_TEMPORARY = re.compile(r"\.(?P<target>.+)\.(?P<pid>[0-9]+)-[0-9a-f]{8}\.partial")
_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class PackageWriter:
    """Use as a context manager: tensors in the container's order, then `finish`.

    Raises StorageError for an existing target, a full disk, a missing permission and any other failure
    of the file system; leaving the block without `finish` removes what was written.
    """

    def __init__(self, target: Path, container: Container, files: Files) -> None:
        self._target = target.absolute()
        self._container = container
        self._files = files
        self._temporary: Path | None = None
        self._unlock: Callable[[], None] | None = None
        self._weights: WritableFile | None = None
        self._written = 0

    def __enter__(self) -> PackageWriter:
        try:
            with self._translated():
                self._prepare()
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon()

    def write_tensor(self, pieces: Iterable[npt.NDArray[np.uint8]]) -> str:
        """Write the next tensor of the container; returns the sha256 hex of its bytes.

        `pieces` are C-contiguous and hold exactly the extent's size together, else ValueError.
        """
        if self._weights is None:
            raise ValueError("the writer is not open")
        extent = self._container.extents[self._written]
        digest = hashlib.sha256()
        total = 0
        for piece in pieces:
            data = piece.reshape(-1).data
            with self._translated():
                self._weights.write(data)
            digest.update(data)
            total += piece.size
        if total != extent.size:
            raise ValueError(f"{extent.name} has {total} bytes, and {extent.size} were announced")
        if padding := extent.end - extent.begin - total:
            with self._translated():
                self._weights.write(bytes(padding))
        self._written += 1
        return digest.hexdigest()

    def finish(self, manifest: bytes, texts: Mapping[str, bytes]) -> None:
        """Write `edgeseek.json` and the text files, sync, and give the folder its name."""
        if self._weights is None or self._temporary is None:
            raise ValueError("the writer is not open")
        if self._written != len(self._container.extents):
            raise ValueError(f"{self._written} of {len(self._container.extents)} tensors were written")
        with self._translated():
            weights, self._weights = self._weights, None
            sync_and_close(weights)
            for name, data in {**texts, MANIFEST_NAME: manifest}.items():
                file = self._files.create(self._temporary / name)
                try:
                    file.write(data)
                finally:
                    sync_and_close(file)
            self._files.sync_folder(self._temporary)
            if self._files.exists(self._target):
                raise target_exists(self._target)
            self._files.rename(self._temporary, self._target)
            self._temporary = None
            self._files.sync_folder(self._target.parent)

    def _prepare(self) -> None:
        if self._files.exists(self._target):
            raise target_exists(self._target)
        parent = self._target.parent
        make_folders(parent, self._files)
        remove_abandoned(parent, self._files)
        needed = self._container.file_bytes + _TEXT_ROOM
        free = self._files.free_bytes(parent)
        if free < needed:
            raise no_room("the package", needed, free, parent)
        self._temporary, self._unlock = own_folder(self._target, self._files)
        self._weights = self._files.create(self._temporary / WEIGHTS_NAME)
        self._weights.write(self._container.header)

    def _abandon(self) -> None:
        """Drop what is open; remove the temporary folder unless it was renamed."""
        weights, self._weights = self._weights, None
        temporary, self._temporary = self._temporary, None
        unlock, self._unlock = self._unlock, None
        try:
            if weights is not None:
                weights.close()
            if temporary is not None:
                self._files.remove_tree(temporary)
        except OSError as error:
            raise StorageError(
                f"cannot remove the unfinished package {temporary}: {_reason(error)}; remove it by hand"
            ) from error
        finally:
            if unlock is not None:
                unlock()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(error, self._target) from error


def own_folder(target: Path, files: Files) -> tuple[Path, Callable[[], None]]:
    """A new folder beside `target`, and what unlocks it.

    Raises OSError. A cleaning writer may take a folder before it is locked; then another is made.
    """
    while True:
        path = target.parent / f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.partial"
        files.make_folder(path)
        try:
            unlock = files.lock_folder(path)
        except FileNotFoundError:
            continue
        if unlock is not None:
            return path, unlock


def remove_abandoned(folder: Path, files: Files) -> list[Path]:
    """Remove what writers that no longer run left in `folder`; returns the removed paths.

    A living writer holds a lock on its folder, in whichever process or container it runs.
    """
    removed = []
    for name in files.names(folder):
        if not _TEMPORARY.fullmatch(name):
            continue
        path = folder / name
        try:
            unlock = files.lock_folder(path)
            if unlock is None:
                continue
            try:
                files.remove_tree(path)
            finally:
                unlock()
        except OSError:
            # Another user's, or one that its own writer has just renamed or removed.
            continue
        removed.append(path)
    return removed


def sync_and_close(file: WritableFile) -> None:
    """Return once the contents would survive a power cut; the file is closed even if that fails."""
    try:
        file.sync()
    finally:
        file.close()


def no_room(what: str, needed: int, free: int, folder: Path) -> StorageError:
    """The error for a disk with too little space; sizes in bytes."""
    return StorageError(
        f"{what} takes {_megabytes(needed)} and {folder} has {_megabytes(free)} free; "
        f"free some space or choose a target on another disk"
    )


def target_exists(target: Path) -> StorageError:
    """The error for a target that is there already."""
    return StorageError(f"{target} exists already; remove it first or choose another target")


def storage_error(error: OSError, target: Path) -> StorageError:
    """What the file system refused, in words; `target` is what was to be written."""
    if error.errno in _OUT_OF_SPACE:
        return StorageError(
            f"no space left while writing {target} ({_reason(error)}); nothing was kept, "
            f"free some space or choose a target on another disk"
        )
    if error.errno in _FORBIDDEN:
        return StorageError(
            f"not allowed to write {target} ({_reason(error)}); change the permissions "
            f"or choose another target"
        )
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return target_exists(target)
    return StorageError(f"cannot write {target}: {_reason(error)}; nothing was kept")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
