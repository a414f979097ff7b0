"""What happens to a package's weights between mapping them and the first step.

| choice   | what it does                                                                                  |
|----------|-----------------------------------------------------------------------------------------------|
| none     | nothing: pages are read when the first step touches them                                      |
| populate | a thread reads and maps them meanwhile; the kernel may drop them again when memory is short   |
| lock     | reads them and keeps them (mlock): no page of the weights is ever read twice                  |
| copy     | reads them into anonymous memory with huge pages: decoding is a few percent faster (fewer     |
|          | address translations), but the bytes are this process's own, and loading takes longer         |
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from edgeseek.errors import DoesNotFitError, RuntimeFailure, UsageError
from edgeseek.package import PackedTensor
from edgeseek.runtime import pages

Preload = Literal["none", "populate", "lock", "copy"]

_ALIGNMENT = 64
#: Size of a huge page on x86-64, and on aarch64 with pages of 4 KiB.
_HUGE_PAGE = 2 << 20


def check_preload(preload: str) -> None:
    """Raise UsageError for a name that is not one of the choices."""
    if preload not in get_args(Preload):
        raise UsageError(f"preload {preload!r} is unknown; give one of {', '.join(get_args(Preload))}")


def copy_to_huge_pages(tensors: Mapping[str, PackedTensor]) -> Mapping[str, PackedTensor]:
    """The same tensors in one anonymous mapping that asks for huge pages; views keep it alive.

    Raises DoesNotFitError where the system refuses the memory.
    """
    total = sum(_padded(t.data.nbytes) for t in tensors.values())
    try:
        mapping = mmap.mmap(-1, total + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        from edgeseek.package.address_space import largest_mapping

        available = largest_mapping(total)
        raise DoesNotFitError(
            f"the system refused {total:,} bytes for a copy of the weights, and {available:,} can be had; "
            "use --preload populate, which needs no copy",
            needed=total,
            available=available,
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError as error:  # a kernel without huge pages: small ones do
            if error.errno != errno.EINVAL:
                raise
    memory = np.frombuffer(mapping, np.uint8)
    place = -memory.ctypes.data % _HUGE_PAGE
    copied = {}
    for name, tensor in tensors.items():
        data = memory[place : place + tensor.data.nbytes]
        data[:] = tensor.data
        # The mapping's pages stay in the page cache, but no longer count as this process's.
        pages.advise(tensor.data, pages.DONTNEED)
        data.flags.writeable = False
        copied[name] = replace(tensor, data=data)
        place += _padded(tensor.data.nbytes)
    return copied


def lock_failure(code: int, size: int) -> RuntimeFailure:
    """The error to raise when mlock of `size` bytes failed with `code`, with what would allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if code in (errno.ENOMEM, errno.EPERM, errno.EAGAIN) and soft != resource.RLIM_INFINITY:
        above = "" if hard == resource.RLIM_INFINITY or hard >= size else f" (hard limit {_kib(hard)})"
        return RuntimeFailure(
            f"--preload lock needs {_kib(size)} locked and RLIMIT_MEMLOCK allows {_kib(soft)}{above}"
            f"; raise it (ulimit -l {-(-size // 1024)}, or LimitMEMLOCK= in a systemd unit) or use --preload "
            "populate"
        )
    return RuntimeFailure(
        f"locking {_kib(size)} of weights failed: {os.strerror(code)}; use --preload populate"
    )


def _kib(size: int) -> str:
    return f"{-(-size // 1024):,} KiB"


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
