"""Residency of memory by address: advice to the kernel, and which pages are in memory.

For arrays over a file mapping, whose `mmap` object is somewhere else. Pages that an array only shares with
its neighbours are never touched. Sources: madvise(2), mincore(2).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

#: Drop the pages; those of a file are read again when touched.
DONTNEED = mmap.MADV_DONTNEED
#: Reclaim now what would be reclaimed under pressure, since Linux 5.4 (`MADV_COLD` only marks pages).
PAGEOUT = 21


def advise(data: Bytes, advice: int) -> bool:
    """Give `advice` for the pages that lie wholly inside `data`; False where the kernel does not know it."""
    start, length = _inner(data)
    return length == 0 or _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice) == 0


def resident_bytes(data: Bytes) -> int:
    """Bytes of the pages wholly inside `data` that are in memory, be they mapped or in the page cache.

    Raises OSError where the kernel does not tell.
    """
    start, length = _inner(data)
    if length == 0:
        return 0
    page = mmap.PAGESIZE
    states = np.zeros(length // page, np.uint8)
    pointer = ctypes.c_void_p(states.ctypes.data)
    if _libc().mincore(ctypes.c_void_p(start), ctypes.c_size_t(length), pointer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(np.count_nonzero(states & 1)) * page


def page_out(data: Bytes) -> int:
    """Drop the pages of `data` from memory; the bytes that really went.

    Pages that other processes have mapped stay, and so do those of files that we may not write to.
    """
    try:
        before = resident_bytes(data)
        if before == 0 or not advise(data, PAGEOUT):
            return 0
        return max(0, before - resident_bytes(data))
    except OSError:
        return 0


def _inner(data: Bytes) -> tuple[int, int]:
    """Address and length of the whole pages inside `data`."""
    page = mmap.PAGESIZE
    start = -(-data.ctypes.data // page) * page
    end = (data.ctypes.data + data.nbytes) // page * page
    return start, max(0, end - start)


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
