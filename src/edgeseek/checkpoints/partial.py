"""A file that is being received: appended to, hashed as it grows, gone on with by a later run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgeseek.checkpoints.hub_files import HubFile
from edgeseek.checkpoints.transfer import storage_error

_CHUNK_BYTES = 1 << 20


class PartialFile:
    """Opens or makes `path`, which holds the first `size` bytes of `expected`.

    `report` is told how many bytes were added, or taken away when the server sends them again. It has the
    methods that huggingface_hub's `http_get` calls on the file it writes to. OSErrors of opening pass
    through; those of writing become StorageError, so that they are not mistaken for the network's.
    """

    def __init__(self, path: Path, expected: HubFile, report: Callable[[int], None]) -> None:
        self.path = path
        self.expected = expected
        self.size = 0
        self._report = report
        self._digest = _digest_for(expected)
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "rb+")
        self._rehash()
        if expected.size is not None and self.size > expected.size:
            self._file.truncate(0)
            self._rehash()

    def _rehash(self) -> None:
        self._digest = _digest_for(self.expected)
        self._file.seek(0)
        self.size = 0
        while chunk := self._file.read(_CHUNK_BYTES):
            self._digest.update(chunk)
            self.size += len(chunk)

    def write(self, data: bytes) -> int:
        """Append `data`."""
        try:
            self._file.write(data)
        except OSError as error:
            raise storage_error(self.path, error) from error
        self._digest.update(data)
        self.size += len(data)
        self._report(len(data))
        return len(data)

    def tell(self) -> int:
        """Position, which is the end."""
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move; only to truncate there."""
        return self._file.seek(offset, whence)

    def clear(self) -> None:
        """Start anew."""
        self.seek(0)
        self.truncate()

    def truncate(self) -> int:
        """Cut the file at the position: the server sends it from there again."""
        before = self.size
        length = self._file.truncate()
        self._rehash()
        self._report(self.size - before)
        return length

    def is_verified(self) -> bool:
        """Whether size and digest are those of the listing, as far as it tells them."""
        expected = self.expected.sha256 or self.expected.git_oid
        if self.expected.size is not None and self.size != self.expected.size:
            return False
        return expected is None or self._digest.hexdigest() == expected

    def discard(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise storage_error(self.path, error) from error


def _digest_for(file: HubFile) -> Any:
    if file.sha256 is None and file.git_oid is not None:
        # Git names a file by this; it guards against damage, not against an adversary.
        return hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    return hashlib.sha256()


def is_complete(path: Path, file: HubFile) -> bool:
    """Whether the file at `path` is verifiably `file`; one without a listed digest is fetched again."""
    expected = file.sha256 or file.git_oid
    if expected is None or path.stat().st_size != file.size:
        return False
    digest = _digest_for(file)
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return bool(digest.hexdigest() == expected)
