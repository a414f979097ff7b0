"""What a check may ask besides files: the core, the system's page size, installed packages."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgeseek.settings import Settings

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)[^;]*;.*\bextra\s*==\s*[\"']([^\"']+)[\"']")


@dataclass(frozen=True)
class Probes:
    """The machine as the checks see it; `of_process` is the real one."""

    settings: Settings
    #: Bytes of a page of memory.
    page_size: int
    #: Instruction sets of the core on this machine, fastest first. Raises ImportError where it cannot load.
    isas: Callable[[], list[str]]
    #: Packages that each extra of edgeseek brings.
    extras: Mapping[str, tuple[str, ...]]
    #: Version of an installed package, None where it is missing.
    version: Callable[[str], str | None]
    #: Whether this user may read a file.
    may_read: Callable[[Path], bool]
    #: ONNX Runtime's execution providers, best first. Raises ImportError where it cannot load.
    providers: Callable[[], list[str]]

    @classmethod
    def of_process(cls, settings: Settings) -> Probes:
        """This process, with the files of `settings`."""
        return cls(
            settings=settings,
            page_size=os.sysconf("SC_PAGESIZE"),
            isas=_isas,
            extras=extras_of(_requirements()),
            version=_version,
            may_read=lambda path: os.access(path, os.R_OK),
            providers=_providers,
        )


def extras_of(requirements: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Packages by extra from a distribution's `Requires-Dist` lines; lines without an extra are left out."""
    found: dict[str, tuple[str, ...]] = {}
    for line in requirements:
        match = _REQUIREMENT.match(line.strip())
        if match is not None:
            package, extra = match.groups()
            found[extra] = (*found.get(extra, ()), package)
    return found


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("edgeseek") or []
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return []


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _isas() -> list[str]:
    from edgeseek import _core

    return _core.supported_isas()


def _providers() -> list[str]:
    import onnxruntime

    return [str(name) for name in onnxruntime.get_available_providers()]
