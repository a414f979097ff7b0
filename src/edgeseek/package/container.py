"""The safetensors container: where tensors lie in `model.safetensors`, its header written and checked.

Owns offsets, alignment and padding (FORMAT.md). Knows nothing of schemes or models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from edgeseek.errors import PackageFormatError

#: Start of every tensor in the file: a cache line.
ALIGNMENT = 64
#: Start of tensors over `LARGE_TENSOR` bytes: the page of a Raspberry Pi 5.
LARGE_ALIGNMENT = 16 << 10
LARGE_TENSOR = 1 << 20
#: The header limit of the safetensors reference implementation.
MAX_HEADER = 100_000_000

ITEM_BYTES: Mapping[str, int] = MappingProxyType({"U8": 1, "F16": 2, "F32": 4})


@dataclass(frozen=True)
class Extent:
    """A tensor's place: bytes [begin, begin + size) of the data, then zeros up to `end`."""

    name: str
    dtype: str
    size: int
    begin: int
    end: int


@dataclass(frozen=True)
class Container:
    """A whole file: the header's bytes, its length prefix included, and each tensor's extent."""

    header: bytes
    extents: tuple[Extent, ...]

    @property
    def file_bytes(self) -> int:
        """Size of the whole file."""
        return len(self.header) + (self.extents[-1].end if self.extents else 0)


def alignment_of(name: str, size: int) -> int:
    """What the start of the tensor `name` of `size` bytes is a multiple of.

    An expert starts on a page of its own, since it may be read when its neighbours are not.
    """
    return LARGE_ALIGNMENT if size > LARGE_TENSOR or is_expert(name) else ALIGNMENT


def is_expert(name: str) -> bool:
    """Whether the tensor of that name is read only when a token is routed to it."""
    return ".experts." in name


def lay_out(tensors: Sequence[tuple[str, str, int]]) -> Container:
    """Place tensors (name, dtype, bytes) one after the other."""
    extents = []
    begin = 0
    for index, (name, dtype, size) in enumerate(tensors):
        following = ALIGNMENT
        if index + 1 < len(tensors):
            after, _, its_size = tensors[index + 1]
            following = alignment_of(after, its_size)
        end = _round_up(begin + size, following)
        extents.append(Extent(name, dtype, size, begin, end))
        begin = end
    largest = max((alignment_of(extent.name, extent.size) for extent in extents), default=ALIGNMENT)
    return Container(_header(extents, largest), tuple(extents))


def parse_header(
    prefix: bytes, read: bytes, file_size: int, where: str
) -> Mapping[str, tuple[str, int, int]]:
    """Name -> (dtype, begin, end) in bytes of the file, from the 8-byte `prefix` and the header `read`.

    Raises PackageFormatError unless the entries are typed as ours, flat, contiguous, aligned and fill
    the file exactly.
    """
    length = int.from_bytes(prefix, "little")
    header = _json_object(read, where)
    header.pop("__metadata__", None)
    base = 8 + length
    found: dict[str, tuple[str, int, int]] = {}
    for name, entry in header.items():
        dtype, begin, end = _entry(name, entry, where)
        found[name] = (dtype, base + begin, base + end)
    position = base
    for name, (_, begin, end) in sorted(found.items(), key=lambda item: item[1][1:]):
        if begin != position:
            raise PackageFormatError(f"{where}: tensor {name!r} starts at byte {begin}, not at {position}")
        if begin % ALIGNMENT:
            raise PackageFormatError(
                f"{where}: tensor {name!r} starts at byte {begin}, which is no multiple of {ALIGNMENT}"
            )
        if end > file_size:
            raise PackageFormatError(
                f"{where}: tensor {name!r} ends at byte {end}, and the file has {file_size} bytes; "
                f"it is truncated, convert or pull the model again"
            )
        position = end
    if position != file_size:
        raise PackageFormatError(f"{where}: {file_size} bytes long, and its tensors end at byte {position}")
    return found


def header_length(prefix: bytes, file_size: int, where: str) -> int:
    """Length of the header from the file's first 8 bytes; PackageFormatError if it cannot be true."""
    if len(prefix) < 8:
        raise PackageFormatError(f"{where} has {file_size} bytes, too few for a safetensors file")
    length = int.from_bytes(prefix, "little")
    if length < 2 or length > min(MAX_HEADER, file_size - 8):
        raise PackageFormatError(f"{where} names a header of {length} bytes, and the file has {file_size}")
    return length


def _entry(name: str, entry: Any, where: str) -> tuple[str, int, int]:
    try:
        dtype, (items,), (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        sound = dtype in ITEM_BYTES and all(type(number) is int for number in (items, begin, end))
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise PackageFormatError(f"{where}: the entry of tensor {name!r} is not a flat U8, F16 or F32 tensor")
    if not 0 <= begin < end or end - begin != items * ITEM_BYTES[dtype]:
        raise PackageFormatError(
            f"{where}: tensor {name!r} spans bytes {begin} to {end}, which do not hold {items} {dtype} values"
        )
    return dtype, begin, end


def _json_object(text: bytes, where: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PackageFormatError(f"the header of {where} is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise PackageFormatError(f"the header of {where} is not a JSON object")
    return header


def _header(extents: Sequence[Extent], alignment: int) -> bytes:
    entries = {
        extent.name: {
            "dtype": extent.dtype,
            "shape": [(extent.end - extent.begin) // ITEM_BYTES[extent.dtype]],
            "data_offsets": [extent.begin, extent.end],
        }
        for extent in extents
    }
    text = json.dumps(entries, separators=(",", ":")).encode()
    padded = text.ljust(_round_up(8 + len(text), alignment) - 8)
    return len(padded).to_bytes(8, "little") + padded


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
