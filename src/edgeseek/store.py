"""The packages on this machine: list, find, open, remove, and import of what is not a package yet.

A package lives in `settings.packages_dir`, in a folder named for its source and, where one was asked for,
its scheme. A checkpoint outside is named for its path; when its files change, the next import replaces the
package. Knows nothing of running a model.
"""

from __future__ import annotations

import difflib
import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgeseek.architectures.spec import ModelConfig
from edgeseek.checkpoints import fetch, open_checkpoint
from edgeseek.checkpoints.catalogue import CatalogueEntry, local_path, resolve
from edgeseek.errors import PackageError, StorageError, UnknownModelError, UsageError
from edgeseek.package import Package, convert, open_package
from edgeseek.quantize.schemes import Scheme, parse_rounding_scheme
from edgeseek.settings import Settings
from edgeseek.tokenizer import build_tokenizer_json, chat_template_of, generation_defaults

_MANIFEST = "edgeseek.json"

#: Called with (stage, bytes done, bytes in all or None if unknown).
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class StoredModel:
    """A package of the store. `bytes` is its size on disk, `schemes` what its matrices are stored as."""

    name: str
    path: Path
    bytes: int
    schemes: tuple[str, ...]
    config: ModelConfig


@dataclass(frozen=True)
class Pulled:
    """A package that is there now; `summary` says what its import did, None if it was there before."""

    name: str
    path: Path
    bytes: int
    summary: str | None


@dataclass(frozen=True)
class _Source:
    """Where a package comes from: a catalogue entry to fetch or a checkpoint's path."""

    name: str
    folder: str
    origin: CatalogueEntry | Path


class Store:
    """The packages below `settings.packages_dir`. Holds no state; several processes may use one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = settings.packages_dir

    def models(self) -> list[StoredModel]:
        """All readable packages, by name."""
        return sorted(self._readable(), key=lambda model: model.name)

    def find(self, name: str) -> StoredModel:
        """The stored package called `name` (in any case), or imported from the checkpoint at that path.

        Raises UnknownModelError naming what is there.
        """
        models = self.models()
        path = local_path(name)
        imported = None if path is None or is_package(path) else _source(name, None).name
        for model in models:
            if model.name.lower() == name.lower() or model.name == imported:
                return model
        names = [model.name for model in models]
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names
        here = f"here are {', '.join(close)}" if close else "none was pulled yet"
        raise UnknownModelError(
            f"there is no pulled model {name!r}; {here}. Get one with: edgeseek pull NAME"
        )

    def path_of(self, name: str) -> Path:
        """The package folder of a stored name. Raises UnknownModelError."""
        return self.find(name).path

    def open(self, model: str) -> Package:
        """Open a stored package by name, or any package by path. Raises UnknownModelError, PackageError."""
        path = local_path(model)
        return open_package(path if path is not None and is_package(path) else self.path_of(model))

    def remove(self, name: str) -> None:
        """Delete a stored package. Raises UnknownModelError, StorageError."""
        model = self.find(name)
        with self._lock(model.path.name):
            _delete(model.path)

    def pull(
        self,
        model: str,
        *,
        scheme: str | None = None,
        keep_source: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Pulled:
        """Make sure that the package of `model` (a name, or a checkpoint's path) is here.

        `scheme` is one of f32, f16, q8, q4; None keeps what the checkpoint has. A download is deleted
        after its conversion unless `keep_source`; `force` imports again. Raises UnknownModelError,
        UsageError for an unknown scheme or a path that is a package already, and what fetching, reading
        and converting raise.
        """
        wanted = None if scheme is None else parse_rounding_scheme(scheme)
        if not force and wanted is None and local_path(model) is None:
            stored = self._stored(model)
            if stored is not None:
                return Pulled(stored.name, stored.path, stored.bytes, None)
        source = _source(model, wanted)
        target = self._root / source.folder
        with self._lock(source.folder):
            if is_package(target) and not force:
                return Pulled(source.name, target, _size(target), None)
            summary = self._import(source, target, wanted, keep_source, progress)
            if isinstance(source.origin, Path):
                self._remove_outdated(target)
        return Pulled(source.name, target, _size(target), summary)

    def _import(
        self,
        source: _Source,
        target: Path,
        scheme: Scheme | None,
        keep_source: bool,
        progress: Progress | None,
    ) -> str:
        settings = self._settings
        report = progress or _no_progress
        if isinstance(source.origin, Path):
            return _convert(source, source.origin, target, scheme, settings, report)
        downloads = settings.downloads_dir / source.origin.slug

        def downloaded(done: int, total: int | None) -> None:
            report(f"downloading {source.name}", done, total)

        checkpoint = fetch(source.origin, downloads, settings=settings, progress=downloaded)
        summary = _convert(source, checkpoint, target, scheme, settings, report)
        if not keep_source:
            shutil.rmtree(downloads, ignore_errors=True)
        return summary

    def _stored(self, name: str) -> StoredModel | None:
        return next((m for m in self._readable() if m.name.lower() == name.lower()), None)

    def _readable(self) -> Iterator[StoredModel]:
        for path in sorted(self._root.glob("*/" + _MANIFEST)):
            if path.parent.name.startswith("."):
                continue
            try:
                package = open_package(path.parent)
            except PackageError:
                continue
            with package:
                tensors = package.tensors.values()
                schemes = dict.fromkeys(t.scheme for t in tensors if len(t.shape) == 2)
                config = package.config
            yield StoredModel(package.name, path.parent, _size(path.parent), tuple(schemes), config)

    def _remove_outdated(self, target: Path) -> None:
        """Delete packages of the same checkpoint path and scheme whose files have changed since."""
        name, _, scheme = target.name.partition("+")
        for path in self._root.glob(f"{_escaped(name.rpartition('.')[0])}.*"):
            if path != target and path.name.partition("+")[2] == scheme and is_package(path):
                _delete(path)

    @contextmanager
    def _lock(self, folder: str) -> Iterator[None]:
        """One import or removal of a package at a time, across processes."""
        path = self._root / f".{folder}.lock"
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _storage_error(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def is_package(path: Path) -> bool:
    """Whether `path` is a package folder rather than a checkpoint."""
    return (path / _MANIFEST).is_file()


def _source(model: str, scheme: Scheme | None) -> _Source:
    suffix = "" if scheme is None else f"+{scheme}"
    path = local_path(model)
    if path is None:
        entry = resolve(model)
        return _Source(entry.name + suffix, entry.slug + suffix, entry)
    if is_package(path):
        raise UsageError(
            f"{path} is a package already, its scheme is fixed; run it as it is, or import its checkpoint"
        )
    path = path.resolve()
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem if path.is_file() else path.name).strip("-")[:80]
    name = f"{stem or 'model'}-{_short_hash(str(path))}"
    return _Source(name + suffix, f"{name}.{_short_hash(_stamp(path))}{suffix}", path)


def _stamp(path: Path) -> str:
    """What changes when a checkpoint's files do: their names, sizes and times of change."""
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    stats = ((file.name, file.stat()) for file in files)
    return "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _convert(
    source: _Source,
    checkpoint_path: Path,
    target: Path,
    scheme: Scheme | None,
    settings: Settings,
    report: Progress,
) -> str:
    fresh = target if not target.exists() else target.with_name(f".{target.name}.new")
    if fresh != target and fresh.exists():
        _delete(fresh)

    def converted(done: int, total: int) -> None:
        report(f"converting {source.name}", done, total)

    with open_checkpoint(checkpoint_path) as checkpoint:
        assets = checkpoint.text_assets
        outcome = convert(
            checkpoint,
            fresh,
            name=source.name,
            tokenizer_json=build_tokenizer_json(assets),
            chat_template=chat_template_of(assets),
            generation_config=generation_defaults(assets),
            scheme=scheme,
            progress=converted,
            settings=settings,
        )
    if fresh != target:
        _delete(target)
        fresh.rename(target)
    return outcome.summary


def _delete(folder: Path) -> None:
    """Remove a package; it disappears from the store at once, whatever interrupts the rest."""
    doomed = folder.with_name(f".{folder.name}.removed")
    try:
        if doomed.exists():
            shutil.rmtree(doomed)
        folder.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise _storage_error(folder, error) from error


def _storage_error(path: Path, error: OSError) -> StorageError:
    if error.errno == errno.ENOSPC:
        return StorageError(f"no space left for {path}; free some and run the same command again")
    return StorageError(f"cannot write {path}: {error.strerror or error}")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _no_progress(stage: str, done: int, total: int | None) -> None:
    """A Progress that shows nothing."""
