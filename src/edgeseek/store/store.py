"""`Store`: what may be done with the packages of this machine.

Owns which folder a name leads to and who may change it when. Knows nothing of how a package is made
(`importing.py`) or exchanged (`package/folders.py`).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeseek.architectures.spec import ModelConfig
from edgeseek.checkpoints.catalogue import local_path, resolve
from edgeseek.errors import (
    DoesNotFitError,
    PackageDamagedError,
    PackageError,
    PackageFormatError,
    StorageError,
    UnknownModelError,
    UsageError,
)
from edgeseek.package import Package, folders, is_package, open_package
from edgeseek.package.files import Files, OsFiles, make_folders
from edgeseek.package.manifest import MANIFEST_NAME
from edgeseek.quantize.schemes import Scheme, parse_rounding_scheme
from edgeseek.settings import Settings
from edgeseek.store.sources import Source, is_outdated, lock_name, source_of

if TYPE_CHECKING:
    from edgeseek.memory.footprint import Footprint

#: Called with (stage, bytes done, bytes in all or None if unknown).
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class StoredModel:
    """A package of the store. `bytes` is its size on disk, `schemes` what its matrices are stored as.

    Of one that cannot be opened, `problem` says why and `config` is None.
    """

    name: str
    path: Path
    bytes: int
    schemes: tuple[str, ...] = ()
    config: ModelConfig | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Pulled:
    """A package that is there now; `summary` says what its import did, None if it was there before."""

    name: str
    path: Path
    bytes: int
    summary: str | None


class Store:
    """The packages below `settings.packages_dir`. Holds no state; several processes may use one.

    `files` are the operations that change the folder, the operating system's by default.
    """

    def __init__(self, settings: Settings, files: Files | None = None) -> None:
        self._settings = settings
        self._root = settings.packages_dir
        self._files = files or OsFiles()

    def models(self) -> list[StoredModel]:
        """All packages, by name, those that are damaged too."""
        self._settle_all()
        return sorted(self._all(), key=lambda model: model.name)

    def find(self, name: str) -> StoredModel:
        """The package that `name` leads to, in any case.

        That is the stored package of that name, or of the catalogue's entry that `name` resolves to, or at
        that path, or imported from the checkpoint at that path. Raises UnknownModelError naming what is
        there.
        """
        models = self.models()
        wanted = {name.lower()}
        with suppress(UnknownModelError):
            wanted.add(resolve(name).name.lower())
        path = local_path(name)
        if path is not None and not is_package(path):
            wanted.add(source_of(name, None).name.lower())
        for model in models:
            if model.name.lower() in wanted or (path is not None and path.resolve() == model.path.resolve()):
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
        """Delete a stored package, damaged or not. Raises UnknownModelError, StorageError."""
        model = self.find(name)
        with self._locked(model.path.name, _no_progress):
            folders.remove(model.path, self._files)

    def pull(
        self,
        model: str,
        *,
        scheme: str | None = None,
        keep_source: bool = False,
        force: bool = False,
        progress: Progress | None = None,
        accept: Callable[[Footprint], None] | None = None,
    ) -> Pulled:
        """Make sure that the package of `model` (a name, or a checkpoint's path) is here and can be opened.

        `scheme` is one of f32, f16, q8, q4; None keeps what the checkpoint has. A download is deleted
        after its conversion unless `keep_source`; `force` imports again. `accept` is told what the import
        will take, before weights are downloaded where the source has its config apart, and may raise.

        Raises UnknownModelError, UsageError for an unknown scheme, a path that is a package already or the
        name of a package that was imported from a path and has to be imported again, and what fetching,
        reading and converting raise.
        """
        wanted = None if scheme is None else parse_rounding_scheme(scheme)
        self._settle_all()
        if not force and wanted is None and local_path(model) is None:
            stored = self._stored(model)
            if stored is not None:
                return _as_pulled(stored)
        source = self._source(model, wanted)
        target = self._root / source.folder
        with self._locked(source.folder, progress or _no_progress):
            folders.settle(target, self._files)
            present = None if force else self._usable(target)
            if present is None:
                from edgeseek.store.importing import import_source

                summary = import_source(
                    source,
                    target,
                    wanted,
                    keep_source=keep_source,
                    settings=self._settings,
                    files=self._files,
                    report=progress or _no_progress,
                    accept=accept,
                )
            self._remove_outdated(source)
        if present is not None:
            return _as_pulled(present)
        return Pulled(source.name, target, _size(target), summary)

    def footprint(self, model: str, *, scheme: str | None = None) -> Footprint:
        """What `model` takes: a path, a stored package's name, or a hub name, of which the config is fetched.

        A path may be a config.json too. `scheme` is what a checkpoint would be imported at. Raises
        UnknownModelError, UsageError for a model that is one file and not pulled yet, and what reading and
        fetching raise.
        """
        from edgeseek.memory.footprint import footprint_of
        from edgeseek.package.conversion import conversion_threads

        wanted = None if scheme is None else parse_rounding_scheme(scheme)
        threads = conversion_threads(self._settings)
        path = local_path(model)
        if path is not None:
            if is_package(path) and wanted is not None:
                source_of(model, wanted)
            return footprint_of(path, scheme=wanted, threads=threads)
        stored = None if wanted is not None else self._stored(model)
        if stored is not None:
            return footprint_of(stored.path)
        from edgeseek.store.importing import described

        return described(self._source(model, wanted), wanted, self._settings)

    @contextmanager
    def checkpoint(self, model: str, *, progress: Progress | None = None) -> Iterator[Path]:
        """What `model` is made from, with the values that it was published with, until the block is left.

        A path is taken as it is. Of a name, its package is taken where that holds every value exactly or was
        imported from a path; else the checkpoint is downloaded, and deleted afterwards unless a pull asked to
        keep it. Raises UnknownModelError and what fetching raises.
        """
        path = local_path(model)
        if path is not None:
            yield path
            return
        stored = self._stored(model)
        source = None
        with suppress(UnknownModelError):
            source = source_of(model, None)
        if source is None or (stored is not None and _is_exact(stored.path)):
            yield self.find(model).path
            return
        with self._locked(source.folder, progress or _no_progress):
            from edgeseek.store.importing import fetched

            with fetched(source, resolve(model), self._settings, progress or _no_progress) as found:
                yield found

    def _source(self, model: str, scheme: Scheme | None) -> Source:
        try:
            return source_of(model, scheme)
        except UnknownModelError:
            if all(stored.name.lower() != model.lower() for stored in self._all()):
                raise
            raise UsageError(
                f"{model} was imported from a path, which its package does not keep; give the path of the "
                "checkpoint to import it again or at another scheme"
            ) from None

    def _stored(self, name: str) -> StoredModel | None:
        """The usable package of that name; the catalogue's folder is looked at before all others."""
        with suppress(UnknownModelError):
            found = self._usable(self._root / resolve(name).slug)
            if found is not None:
                return found
        named = [model for model in self._all() if model.name.lower() == name.lower()]
        for model in named:
            if model.problem is None:
                return model
        # What is whole and cannot be mapped for want of address space says so.
        return self._usable(named[0].path) if named else None

    def _usable(self, folder: Path) -> StoredModel | None:
        """The package in `folder`, None if there is none or it is damaged; PackageError if unreadable."""
        try:
            return _opened(folder) if is_package(folder) else None
        except (PackageFormatError, PackageDamagedError):
            return None

    def _all(self) -> Iterator[StoredModel]:
        for path in sorted(self._root.glob("*/" + MANIFEST_NAME)):
            if not path.parent.name.startswith("."):
                yield _read(path.parent)

    def _remove_outdated(self, source: Source) -> None:
        """Remove packages of the same checkpoint path and scheme whose files have changed since."""
        if isinstance(source.origin, Path):
            for name in self._files.names(self._root):
                if is_outdated(name, source.folder) and is_package(self._root / name):
                    folders.remove(self._root / name, self._files)

    def _settle_all(self) -> None:
        """End what a crash has interrupted, unless somebody is at work on it or we may not write."""
        # What cannot be settled, on a read-only disk say, is not in the way of reading the rest.
        with suppress(OSError, StorageError):
            for name in folders.unsettled(self._files.names(self._root)):
                with folders.locked(self._root / lock_name(name), None) as mine:
                    if mine:
                        folders.settle(self._root / name, self._files)

    @contextmanager
    def _locked(self, folder: str, report: Progress) -> Iterator[None]:
        """One import or removal of a source at a time, across processes."""
        with folders.translated(self._root):
            make_folders(self._root.absolute(), self._files)
        path = self._root / lock_name(folder)
        with folders.locked(path, lambda: report("waiting for another import or removal", 0, None)):
            yield


def _read(folder: Path) -> StoredModel:
    try:
        return _opened(folder)
    except (PackageError, DoesNotFitError) as error:
        return StoredModel(_name_of(folder), folder, _size(folder), problem=str(error))


def _opened(folder: Path) -> StoredModel:
    with open_package(folder) as package:
        schemes = dict.fromkeys(t.scheme for t in package.tensors.values() if len(t.shape) == 2)
        return StoredModel(package.name, folder, _size(folder), tuple(schemes), package.config)


def _is_exact(folder: Path) -> bool:
    with open_package(folder) as package:
        return all(record.exact for record in package.manifest.tensors.values())


def _name_of(folder: Path) -> str:
    """The name in a manifest that is otherwise damaged, or else the folder's."""
    with suppress(OSError, ValueError, RecursionError, LookupError, TypeError):
        name = json.loads((folder / MANIFEST_NAME).read_bytes())["name"]
        if isinstance(name, str) and name:
            return name
    return folder.name


def _as_pulled(model: StoredModel) -> Pulled:
    return Pulled(model.name, model.path, model.bytes, None)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def _no_progress(stage: str, done: int, total: int | None) -> None:
    """A Progress that shows nothing."""
