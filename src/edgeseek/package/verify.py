"""Re-hashes a package's contents against the digests in `edgeseek.json`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from edgeseek.errors import PackageDamagedError, PackageError
from edgeseek.package.manifest import WEIGHTS_NAME
from edgeseek.package.reader import locate, open_package, read_file

#: Called with (bytes done, bytes in all).
Progress = Callable[[int, int], None]

_CHUNK = 1 << 20
#: Names shown in the error before the rest is counted.
_SHOWN = 5


def verify_package(path: Path, progress: Progress | None = None) -> None:
    """Read every tensor and text file of the package in folder `path` and compare its sha256.

    Raises PackageDamagedError naming what differs, and whatever `open_package` raises. Reads through a
    buffer of 1 MiB, so that a failing disk is an error and not a crash.
    """
    with open_package(path) as package:
        manifest = package.manifest
    damaged = [
        name
        for name, digest in manifest.files.items()
        if hashlib.sha256(read_file(path / name)).hexdigest() != digest
    ]
    weights = path / WEIGHTS_NAME
    places = locate(weights, manifest)
    total = sum(record.size for record in manifest.tensors.values())
    done = 0
    try:
        with weights.open("rb", buffering=0) as file:
            for name, record in manifest.tensors.items():
                digest = hashlib.sha256()
                file.seek(places[name])
                left = record.size
                while left and (data := file.read(min(left, _CHUNK))):
                    digest.update(data)
                    left -= len(data)
                    done += len(data)
                    if progress is not None:
                        progress(done, total)
                if left or digest.hexdigest() != record.sha256:
                    damaged.append(name)
    except OSError as error:
        raise PackageError(f"cannot read {weights}: {error.strerror or error}") from error
    if damaged:
        more = f" and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
        raise PackageDamagedError(
            f"{path}: {', '.join(damaged[:_SHOWN])}{more} differ from their recorded digests; "
            f"remove the package and convert or pull the model again"
        )
