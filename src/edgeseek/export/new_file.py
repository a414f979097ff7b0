"""A file that appears under its name whole or not at all.

It is written in a folder beside the target, synced, and renamed; the folder is removed whatever happens,
or by the next writer in the same place if this one is killed. Knows nothing of contents.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from edgeseek.errors import StorageError
from edgeseek.package.files import Files, WritableFile, make_folders
from edgeseek.package.writer import (
    no_room,
    own_folder,
    remove_abandoned,
    storage_error,
    sync_and_close,
    target_exists,
)


class NewFile:
    """Use as a context manager: `write` front to back, then `finish`.

    `size` is what will be written, in bytes, `what` its name in errors. Raises StorageError for an existing
    target unless `force`, for a folder of that name, a full disk, a missing permission.
    """

    def __init__(self, target: Path, size: int, what: str, files: Files, *, force: bool = False) -> None:
        self._target = target.absolute()
        self._size, self._what = size, what
        self._files = files
        self._force = force
        self._folder: Path | None = None
        self._unlock: Callable[[], None] | None = None
        self._file: WritableFile | None = None

    def __enter__(self) -> NewFile:
        try:
            self._check_target()
            parent = self._target.parent
            make_folders(parent, self._files)
            remove_abandoned(parent, self._files)
            free = self._files.free_bytes(parent)
            if free < self._size:
                raise no_room(self._what, self._size, free, parent)
            self._folder, self._unlock = own_folder(self._target, self._files)
            self._file = self._files.create(self._folder / self._target.name)
        except OSError as error:
            self._abandon()
            raise storage_error(error, self._target) from error
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon()

    def write(self, data: memoryview | bytes) -> None:
        """Append `data`."""
        if self._file is None:
            raise ValueError("the file is not open")
        try:
            self._file.write(data)
        except OSError as error:
            raise storage_error(error, self._target) from error

    def finish(self) -> None:
        """Sync the file and give it its name."""
        if self._file is None or self._folder is None:
            raise ValueError("the file is not open")
        try:
            file, self._file = self._file, None
            sync_and_close(file)
            self._check_target()
            self._files.rename(self._folder / self._target.name, self._target)
            self._files.sync_folder(self._target.parent)
        except OSError as error:
            raise storage_error(error, self._target) from error

    def _check_target(self) -> None:
        if self._target.is_dir():
            raise StorageError(f"{self._target} is a folder; give the name of a file")
        if not self._force and self._files.exists(self._target):
            raise target_exists(self._target)

    def _abandon(self) -> None:
        file, self._file = self._file, None
        folder, self._folder = self._folder, None
        unlock, self._unlock = self._unlock, None
        with ExitStack() as steps:
            if unlock is not None:
                steps.callback(unlock)
            if folder is not None:
                steps.callback(self._files.remove_tree, folder)
            if file is not None:
                steps.callback(file.close)
