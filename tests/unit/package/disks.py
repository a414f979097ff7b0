"""Stand-ins for the file system: one that records, one that fails, and a disk that loses power."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edgeseek.package.files import Files, OsFiles, WritableFile

#: One operation: its kind, its path, and what goes with it (data, or the new path).
Operation = tuple[str, Path, bytes | Path | None]


@dataclass
class WatchedFiles:
    """The operating system's files; `watch` hears of each change before it happens and may raise."""

    watch: Callable[[str, Path, bytes | Path | None], None]
    free: int = 1 << 40
    real: Files = field(default_factory=OsFiles)

    def exists(self, path: Path) -> bool:
        return self.real.exists(path)

    def names(self, folder: Path) -> list[str]:
        return self.real.names(folder)

    def free_bytes(self, folder: Path) -> int:
        return self.free

    def make_folder(self, path: Path) -> None:
        self.watch("make_folder", path, None)
        self.real.make_folder(path)

    def create(self, path: Path) -> WatchedFile:
        self.watch("create", path, None)
        return WatchedFile(self, path, self.real.create(path))

    def sync_folder(self, path: Path) -> None:
        self.watch("sync_folder", path, None)
        self.real.sync_folder(path)

    def rename(self, source: Path, target: Path) -> None:
        self.watch("rename", source, target)
        self.real.rename(source, target)

    def remove_tree(self, path: Path) -> None:
        self.watch("remove_tree", path, None)
        self.real.remove_tree(path)

    def lock_folder(self, path: Path) -> Callable[[], None] | None:
        return self.real.lock_folder(path)


@dataclass
class WatchedFile:
    files: WatchedFiles
    path: Path
    real: WritableFile

    def write(self, data: memoryview | bytes) -> None:
        self.files.watch("write", self.path, bytes(data))
        self.real.write(data)

    def sync(self) -> None:
        self.files.watch("sync", self.path, None)
        self.real.sync()

    def close(self) -> None:
        self.real.close()


@dataclass
class Recorder:
    """Keeps every operation of a `WatchedFiles`."""

    operations: list[Operation] = field(default_factory=list)

    def __call__(self, kind: str, path: Path, extra: bytes | Path | None) -> None:
        self.operations.append((kind, path, extra))


@dataclass
class FailAt:
    """Raises `error` at the operation of that number, counted from 0; clean-up is let through."""

    number: int
    error: BaseException
    seen: list[Operation] = field(default_factory=list)

    def __call__(self, kind: str, path: Path, extra: bytes | Path | None) -> None:
        if kind == "remove_tree":
            return
        self.seen.append((kind, path, extra))
        if len(self.seen) == self.number + 1:
            raise self.error


@dataclass
class File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


@dataclass
class Folder:
    """Names now, and names as of the folder's last sync."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)


class PowerCut:
    """A disk that is given a prefix of the recorded operations and then loses power.

    Contents that were not synced are lost. Names that were not synced are kept (`names_survive`, as a
    file system with a metadata journal may) or lost; so both orders of reaching the disk are covered.
    """

    def __init__(self, root: Path, operations: list[Operation]) -> None:
        self._root = root
        self._top = Folder()
        for kind, path, extra in operations:
            self._apply(kind, path, extra)

    def restore(self, into: Path, *, names_survive: bool, torn: bool = False) -> None:
        """Write what is left to the folder `into`; `torn` keeps half of what was not synced."""
        self._write(self._top, into, names_survive, torn)

    def _apply(self, kind: str, path: Path, extra: bytes | Path | None) -> None:
        folder = self._folder(path.parent) if path != self._root else self._top
        if kind == "make_folder":
            folder.names[path.name] = Folder()
        elif kind == "create":
            folder.names[path.name] = File()
        elif kind == "sync_folder":
            found = self._folder(path)
            found.synced = dict(found.names)
        elif kind == "rename":
            assert isinstance(extra, Path)
            self._folder(extra.parent).names[extra.name] = folder.names.pop(path.name)
        elif kind == "remove_tree":
            del folder.names[path.name]
        else:
            file = folder.names[path.name]
            assert isinstance(file, File)
            if kind == "write":
                assert isinstance(extra, bytes)
                file.content += extra
            else:
                file.synced = bytes(file.content)

    def _folder(self, path: Path) -> Folder:
        found = self._top
        for part in path.relative_to(self._root).parts:
            entry = found.names[part]
            assert isinstance(entry, Folder)
            found = entry
        return found

    def _write(self, folder: Folder, into: Path, names_survive: bool, torn: bool) -> None:
        into.mkdir(exist_ok=True)
        for name, entry in (folder.names if names_survive else folder.synced).items():
            if isinstance(entry, Folder):
                self._write(entry, into / name, names_survive, torn)
                continue
            kept = len(entry.synced)
            if torn:
                kept += (len(entry.content) - kept) // 2
            (into / name).write_bytes(entry.content[:kept])
