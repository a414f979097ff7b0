"""Several files that appear in a folder together: written beside it, synced, then moved in one by one.

The last one named is moved last, so that whoever finds it finds the others too. Knows nothing of contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from edgeseek.errors import StorageError
from edgeseek.package.files import Files, make_folders
from edgeseek.package.writer import (
    no_room,
    own_folder,
    remove_abandoned,
    storage_error,
    sync_and_close,
    target_exists,
)


class NewFiles:
    """Use as a context manager: `begin` with all names, `write` each, then `finish`.

    Files of those names that exist are replaced with `force` only. Raises StorageError for those, for a full
    disk and for a missing permission. Leaves nothing behind unless `finish` was reached.
    """

    def __init__(self, folder: Path, files: Files, *, force: bool = False) -> None:
        self._target = folder.absolute()
        self._files = files
        self._force = force
        self._names: Sequence[str] = ()
        self._folder: Path | None = None
        self._unlock: Callable[[], None] | None = None

    def __enter__(self) -> NewFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        folder, self._folder = self._folder, None
        unlock, self._unlock = self._unlock, None
        with ExitStack() as steps:
            if unlock is not None:
                steps.callback(unlock)
            if folder is not None:
                steps.callback(self._files.remove_tree, folder)

    def begin(self, names: Sequence[str], size: int) -> None:
        """Take a folder for these files, which have about `size` bytes together."""
        self._names = names
        try:
            self._check_targets()
            parent = self._target.parent
            make_folders(parent, self._files)
            remove_abandoned(parent, self._files)
            free = self._files.free_bytes(parent)
            if free < size:
                raise no_room("the exported model", size, free, parent)
            self._folder, self._unlock = own_folder(self._target, self._files)
        except OSError as error:
            raise storage_error(error, self._target) from error

    def path(self, name: str) -> Path:
        """Where a file lies until `finish`."""
        if self._folder is None:
            raise ValueError("nothing was begun")
        return self._folder / name

    def write(self, name: str, pieces: Iterable[memoryview | bytes]) -> None:
        """Write and sync one file."""
        try:
            file = self._files.create(self.path(name))
            try:
                for piece in pieces:
                    file.write(piece)
            except BaseException:
                file.close()
                raise
            sync_and_close(file)
        except OSError as error:
            raise storage_error(error, self._target) from error

    def finish(self) -> None:
        """Give all files their names, in the order in which they were named to `begin`."""
        try:
            self._check_targets()
            make_folders(self._target, self._files)
            for name in self._names:
                self._files.rename(self.path(name), self._target / name)
            self._files.sync_folder(self._target)
        except OSError as error:
            raise storage_error(error, self._target) from error

    def _check_targets(self) -> None:
        if self._files.exists(self._target) and not self._target.is_dir():
            raise StorageError(f"{self._target} is a file; give the name of a folder")
        for name in self._names:
            path = self._target / name
            if path.is_dir():
                raise StorageError(f"{path} is a folder; give another output")
            if not self._force and self._files.exists(path):
                raise target_exists(path)
