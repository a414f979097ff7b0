"""How large a mapping the system gives, for errors that say what would fit."""

from __future__ import annotations

import mmap

_MIB = 1 << 20


def largest_mapping(below: int) -> int:
    """The most bytes, less than `below`, that the system gives in one private mapping, to a MiB.

    Nothing is touched, so this asks for address space and, where the system does not overcommit, for the
    promise of memory.
    """
    fits, fails = 0, -(-below // _MIB)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        try:
            mmap.mmap(-1, middle * _MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
        except (OSError, MemoryError):
            fails = middle
        else:
            fits = middle
    return fits * _MIB
