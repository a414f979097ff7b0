"""Where a package comes from, and the names that follow from it: its own, its folder's, its lock's.

A checkpoint outside is named for its path; when its files change, its package gets another folder. Reads no
file's contents.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from edgeseek.checkpoints.catalogue import CatalogueEntry, local_path, resolve
from edgeseek.errors import UsageError
from edgeseek.package import is_package
from edgeseek.quantize.schemes import ROUNDING_SCHEMES, Scheme

#: The end of a folder's name: a scheme that was asked for. "++q8" is part of a hub name with a file.
_SCHEME = re.compile(rf"(?<!\+)\+(?:{'|'.join(ROUNDING_SCHEMES)})$")
_STAMP = re.compile(r"\.[0-9a-f]{8}$")


@dataclass(frozen=True)
class Source:
    """A catalogue entry to fetch or a checkpoint's path; `name` and `folder` are its package's."""

    name: str
    folder: str
    origin: CatalogueEntry | Path


def source_of(model: str, scheme: Scheme | None) -> Source:
    """The source of `model`, a path or a catalogue name, to be imported at `scheme`.

    Raises UnknownModelError, or UsageError for the path of a package.
    """
    suffix = "" if scheme is None else f"+{scheme}"
    path = local_path(model)
    if path is None:
        entry = resolve(model)
        return Source(entry.name + suffix, entry.slug + suffix, entry)
    if is_package(path):
        raise UsageError(
            f"{path} is a package already, its scheme is fixed; run it as it is, or import its checkpoint"
        )
    path = path.resolve()
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem if path.is_file() else path.name).strip("-")[:80]
    name = f"{stem or 'model'}-{_short_hash(str(path))}"
    return Source(name + suffix, f"{name}.{_short_hash(_stamp(path))}{suffix}", path)


def lock_name(folder: str) -> str:
    """What is locked to change the package `folder`: all schemes of one source share its download."""
    return f".{_STAMP.sub('', _SCHEME.sub('', folder))}.lock"


def is_outdated(folder: str, by: str) -> bool:
    """Whether `folder` is of the checkpoint and scheme of `by`, which was stamped later."""
    return folder != by and _unstamped(folder) == _unstamped(by)


def _unstamped(folder: str) -> tuple[str, str]:
    base = _SCHEME.sub("", folder)
    return _STAMP.sub("", base), folder[len(base) :]


def _stamp(path: Path) -> str:
    """What changes when a checkpoint's files do: their names, sizes and times of change."""
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    stats = ((file.name, file.stat()) for file in files)
    return "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
