"""The digest that names a checkpoint's contents, and sha256 of one file; both stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edgeseek.errors import CheckpointError

_CHUNK_BYTES = 1 << 20


def _feed(digest: Any, path: Path) -> int:
    """Update `digest` with the contents of `path`; returns their number of bytes."""
    buffer = bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    total = 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
            total += count
    return total


def file_sha256(path: Path) -> str:
    """sha256 hex of the contents of `path`; OSError passes through."""
    digest = hashlib.sha256()
    _feed(digest, path)
    return digest.hexdigest()


def checkpoint_digest(files: Iterable[Path]) -> str:
    """sha256 hex over the files, sorted by name.

    Each contributes its name in UTF-8, a zero byte, its size as 8 bytes little-endian, and its contents.
    Raises CheckpointError if one cannot be read or changes its size meanwhile.
    """
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.name):
        try:
            size = path.stat().st_size
            digest.update(path.name.encode() + b"\0" + size.to_bytes(8, "little"))
            read = _feed(digest, path)
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
        if read != size:
            raise CheckpointError(f"{path} changed from {size} to {read} bytes while it was read; try again")
    return digest.hexdigest()
