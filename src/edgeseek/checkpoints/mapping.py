"""A read-only file mapping and the tensors in it.

Owns the mapping's lifetime and how much of it stays resident: reading a whole checkpoint through
`MappedTensor.read_rows` keeps at most `RESIDENT_BYTES` and one tile in memory. Knows no file format.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgeseek.checkpoints.tensor_types import BLOCKS
from edgeseek.errors import CheckpointError, CheckpointFormatError, UnsupportedCheckpointError

#: Pages handed out before the older ones are given back to the page cache.
RESIDENT_BYTES = 32 << 20


class MappedFile:
    """A regular file mapped read-only; `size` is its length in bytes when it was opened.

    Raises CheckpointFormatError if it is empty or no regular file, CheckpointError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handed_out = 0
        try:
            # Opening a FIFO would wait for its writer.
            if not stat.S_ISREG(path.stat().st_mode):
                raise CheckpointFormatError(f"{path} is not a regular file; give the path of a model file")
            with path.open("rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                if self.size == 0:
                    raise CheckpointFormatError(f"{path} is empty; download it again")
                self._map: mmap.mmap | None = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error

    @property
    def buffer(self) -> mmap.mmap:
        """The whole mapping. Raises CheckpointError after `close`."""
        if self._map is None:
            raise CheckpointError(f"{self.path} was closed; open the checkpoint again to read from it")
        return self._map

    def view(self, offset: int, length: int) -> npt.NDArray[np.uint8]:
        """Bytes [offset, offset + length) as a read-only array over the mapping, without a copy."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise CheckpointFormatError(
                f"{self.path}: bytes {offset} to {offset + length} lie outside the file of {self.size} bytes"
            )
        buffer = self.buffer
        self._handed_out += length
        if self._handed_out > RESIDENT_BYTES:
            self.release()
            self._handed_out = length
        if length == 0:
            return np.empty(0, dtype=np.uint8)
        return np.frombuffer(buffer, dtype=np.uint8, count=length, offset=offset)

    def release(self) -> None:
        """Give resident pages back; views stay valid, their pages are read again when touched."""
        self.buffer.madvise(mmap.MADV_DONTNEED)
        self._handed_out = 0

    def close(self) -> None:
        """Unmap. Where a view is still in use the mapping goes with the last of them."""
        mapping, self._map = self._map, None
        if mapping is None:
            return
        try:
            mapping.close()
        except BufferError:
            # An array still looks into it and holds the reference that keeps it mapped.
            return


@dataclass(frozen=True)
class MappedTensor:
    """A `LazyTensor` at `offset` bytes of a mapped file; whoever makes it has checked the extent.

    A tensor of more than two axes is read as one matrix of `prod(shape[:-1])` rows.
    """

    file: MappedFile
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def rows(self) -> int:
        """Rows that `read_rows` counts; 1 for a vector or a scalar."""
        return math.prod(self.shape[:-1])

    def read_rows(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Stored bytes of rows [start, stop) as [rows, bytes per row], read-only and not copied.

        Raises UnsupportedCheckpointError for a type outside `BLOCKS`, ValueError for rows that are not there.
        """
        if self.dtype not in BLOCKS:
            raise UnsupportedCheckpointError(
                f"{self.file.path}: tensor {self.name!r} is stored as {self.dtype}, which is not supported; "
                f"use a checkpoint stored as one of {', '.join(BLOCKS)}"
            )
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"rows {start} to {stop} of {self.name!r}, which has {self.rows}")
        values, size = BLOCKS[self.dtype]
        columns = self.shape[-1] if self.shape else 1
        row_bytes = columns // values * size
        data = self.file.view(self.offset + start * row_bytes, (stop - start) * row_bytes)
        return data.reshape(stop - start, row_bytes)
