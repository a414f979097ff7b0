"""The header of a GGUF file: metadata and tensor records, every count and offset checked against the file.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian:

    "GGUF", u32 version, u64 tensors, u64 metadata entries
    per entry: string key, u32 type, value; an array is u32 element type, u64 length, elements
    per tensor: string name, u32 axes, u64 sizes (fastest axis first), u32 type, u64 offset
    padding to general.alignment (32 unless set), then the data, which the offsets count from

A string is u64 length and UTF-8 bytes. Allocates no more than a small multiple of the bytes it has read,
whatever the counts claim. Owns that layout; knows nothing of what keys or tensors mean.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from edgeseek.checkpoints.mapping import MappedFile, MappedTensor
from edgeseek.checkpoints.tensor_types import BLOCKS, GGUF_TYPES, GGUF_UNREAD_TYPES, stored_bytes
from edgeseek.errors import CheckpointFormatError, UnsupportedCheckpointError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
#: ggml's limit.
MAX_AXES = 4
#: Larger than any vocabulary's metadata; bounds what a damaged length can make us parse.
MAX_METADATA_BYTES = 128 << 20
#: Longest array: several times the largest vocabulary or list of merges.
MAX_ARRAY_LENGTH = 1 << 22
MAX_NAME_BYTES = 1024

_STRING, _ARRAY = 8, 9
#: Value types of fixed size, by GGUF's number: numpy's name of their little-endian form.
_SCALARS: Mapping[int, str] = MappingProxyType(
    {
        0: "<u1",
        1: "<i1",
        2: "<u2",
        3: "<i2",
        4: "<u4",
        5: "<i4",
        6: "<f4",
        7: "?",
        10: "<u8",
        11: "<i8",
        12: "<f8",
    }
)
#: The least an entry can take: an empty key or name and the smallest value or record.
_LEAST_ENTRY_BYTES = 8 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF declares. Arrays in `metadata` are lists; `tensors` are in file order."""

    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, MappedTensor]


def read_header(file: MappedFile) -> GgufHeader:
    """Parse and check the header of `file`.

    Raises CheckpointFormatError for a damaged file and UnsupportedCheckpointError for a sound one of a
    kind we do not read, each naming the file, the entry or tensor, and the numbers.
    """
    return _Parser(file).header()


class _Parser:
    """A position in the mapping, and the checks for moving it."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.buffer = file.buffer
        self.size = file.size
        self.position = 0

    def header(self) -> GgufHeader:
        version = self._version()
        tensor_count = self._u64("the tensor count")
        entry_count = self._u64("the metadata count")
        self._check_count("metadata entries", entry_count, _LEAST_ENTRY_BYTES)
        self._check_count("tensors", tensor_count, _LEAST_TENSOR_BYTES)
        metadata: dict[str, Any] = {}
        for index in range(entry_count):
            key = self._name(f"the key of metadata entry {index} of {entry_count}")
            if key in metadata:
                raise self._damaged(f"the metadata key {key!r} occurs twice")
            metadata[key] = self._value(key)
            if self.position > MAX_METADATA_BYTES:
                raise self._damaged(
                    f"its metadata goes on after {self.position} bytes, at {key!r}; no model has as much"
                )
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
            raise self._damaged(f"general.alignment is {_short(alignment)} and must be a power of two")
        records = [self._tensor_record(index, tensor_count) for index in range(tensor_count)]
        start = -(-self.position // alignment) * alignment
        return GgufHeader(version, MappingProxyType(metadata), self._place(records, start, alignment))

    # What a file claims to be.

    def _version(self) -> int:
        magic = bytes(self.buffer[:4])
        if magic != MAGIC:
            raise CheckpointFormatError(
                f"{self.file.path} begins with {magic!r} where a GGUF file begins with {MAGIC!r}; "
                f"give the path of a .gguf file or of a Hugging Face folder"
            )
        self.position = 4
        version = self._u32("the version")
        if version and not version & 0xFFFF:
            raise UnsupportedCheckpointError(
                f"{self.file.path} is a big-endian GGUF (version field {version:#010x}); convert it with "
                f"gguf-convert-endian, which the package gguf brings"
            )
        if version not in VERSIONS:
            raise UnsupportedCheckpointError(
                f"{self.file.path} has GGUF version {version}, not {' or '.join(map(str, VERSIONS))}; "
                f"convert the model again with a current llama.cpp"
            )
        return version

    def _damaged(self, what: str) -> CheckpointFormatError:
        return CheckpointFormatError(
            f"{self.file.path}: {what}; the file is damaged or incomplete, download it again"
        )

    def _check_count(self, what: str, count: int, least: int) -> None:
        if count * least > self.size - self.position:
            raise self._damaged(f"it claims {count} {what}, more than {self.size} bytes can hold")

    # Values.

    def _advance(self, length: int, what: str) -> int:
        """Move on by `length` bytes that must exist; returns where they start."""
        start = self.position
        if length > self.size - start:
            raise self._damaged(
                f"{what} needs {length} bytes at byte {start} and the file ends at byte {self.size}"
            )
        self.position = start + length
        return start

    def _u32(self, what: str) -> int:
        value: int = _U32.unpack_from(self.buffer, self._advance(4, what))[0]
        return value

    def _u64(self, what: str) -> int:
        value: int = _U64.unpack_from(self.buffer, self._advance(8, what))[0]
        return value

    def _name(self, what: str) -> str:
        length = self._u64(what)
        if not 0 < length <= MAX_NAME_BYTES:
            raise self._damaged(f"{what} has {length} bytes, outside 1 to {MAX_NAME_BYTES}")
        start = self._advance(length, what)
        try:
            return self.buffer[start : self.position].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._damaged(f"{what} is not UTF-8 at byte {start + error.start}") from error

    def _value(self, key: str) -> Any:
        kind = self._u32(f"the type of {key!r}")
        if kind in _SCALARS:
            return self._numbers(key, kind, 1)[0]
        if kind == _STRING:
            return self._strings(key, 1)[0]
        if kind != _ARRAY:
            raise self._damaged(f"the metadata {key!r} has the type {kind}, which GGUF does not define")
        element = self._u32(f"the element type of {key!r}")
        length = self._u64(f"the length of {key!r}")
        if length > MAX_ARRAY_LENGTH:
            raise self._damaged(f"the array {key!r} claims {length} elements, more than {MAX_ARRAY_LENGTH}")
        if element in _SCALARS:
            return self._numbers(key, element, length)
        if element == _STRING:
            return self._strings(key, length)
        if element == _ARRAY:
            raise UnsupportedCheckpointError(
                f"{self.file.path}: the metadata {key!r} is an array of arrays, which no model we run has; "
                f"use another conversion of the model"
            )
        raise self._damaged(f"the array {key!r} has elements of type {element}, which GGUF does not define")

    def _numbers(self, key: str, kind: int, count: int) -> list[Any]:
        dtype = np.dtype(_SCALARS[kind])
        start = self._advance(count * dtype.itemsize, f"the value of {key!r}")
        if dtype.kind == "b":
            return [byte != 0 for byte in self.buffer[start : self.position]]
        # A copy, so that no view outlives this call and pins the mapping.
        values: list[Any] = np.frombuffer(self.buffer[start : self.position], dtype=dtype).tolist()
        return values

    def _strings(self, key: str, count: int) -> list[str]:
        """`count` strings; the loop that a vocabulary of 150,000 tokens passes, so it is kept flat."""
        if count * 8 > self.size - self.position:
            raise self._damaged(f"{key!r} claims {count} strings, more than the file can hold")
        # Text of the vocabulary must be exact; a model runs well with a mangled author's name.
        errors = "strict" if key.startswith("tokenizer.") else "replace"
        buffer, unpack, limit = self.buffer, _U64.unpack_from, self.size
        result: list[str] = []
        position = self.position
        try:
            for _ in range(count):
                start = position + 8
                position = start + unpack(buffer, position)[0]
                if position > limit:
                    raise self._damaged(
                        f"string {len(result)} of {key!r} at byte {start - 8} claims {position - start} "
                        f"bytes and the file ends at byte {limit}"
                    )
                result.append(buffer[start:position].decode("utf-8", errors))
        except struct.error as error:
            raise self._damaged(f"string {len(result)} of {key!r} lies beyond the file's end") from error
        except UnicodeDecodeError as error:
            raise self._damaged(f"string {len(result)} of {key!r} is not UTF-8") from error
        self.position = position
        return result

    # Tensors.

    def _tensor_record(self, index: int, count: int) -> tuple[str, str, tuple[int, ...], int]:
        """(name, type name, shape with the slowest axis first, offset in the data)."""
        what = f"the name of tensor {index} of {count}"
        name = self._name(what)
        axes = self._u32(f"the number of axes of tensor {name!r}")
        if not 1 <= axes <= MAX_AXES:
            raise self._damaged(f"tensor {name!r} has {axes} axes, outside 1 to {MAX_AXES}")
        sizes = [self._u64(f"the shape of tensor {name!r}") for _ in range(axes)]
        kind = self._u32(f"the type of tensor {name!r}")
        offset = self._u64(f"the offset of tensor {name!r}")
        if not all(0 < size < 1 << 63 for size in sizes):
            raise self._damaged(f"tensor {name!r} has the shape {sizes}")
        if kind not in GGUF_TYPES:
            known = GGUF_UNREAD_TYPES.get(kind, "unknown to us")
            raise UnsupportedCheckpointError(
                f"{self.file.path}: tensor {name!r} has the type {kind} ({known}); use a GGUF whose tensors "
                f"are {', '.join(BLOCKS)}, such as a Q4_K_M or Q8_0 file of the model"
            )
        return name, GGUF_TYPES[kind], tuple(reversed(sizes)), offset

    def _place(
        self, records: list[tuple[str, str, tuple[int, ...], int]], start: int, alignment: int
    ) -> Mapping[str, MappedTensor]:
        """Check the extents against the file and each other; `start` is where the data begins."""
        tensors: dict[str, MappedTensor] = {}
        extents: list[tuple[int, int, str]] = []
        for name, dtype, shape, offset in records:
            if name in tensors:
                raise self._damaged(f"the tensor {name!r} occurs twice")
            try:
                length = stored_bytes(dtype, math.prod(shape[:-1]), shape[-1]) or 0
            except ValueError as error:
                raise self._damaged(f"tensor {name!r}: {error}") from error
            if offset % alignment:
                raise self._damaged(
                    f"tensor {name!r} is at offset {offset}, no multiple of the alignment {alignment}"
                )
            if start + offset + length > self.size:
                raise self._damaged(
                    f"tensor {name!r} of {dtype} {list(shape)} spans bytes {start + offset} to "
                    f"{start + offset + length} and the file ends at byte {self.size}"
                )
            extents.append((offset, offset + length, name))
            tensors[name] = MappedTensor(self.file, name, dtype, shape, start + offset)
        extents.sort()
        for (_, end, before), (begin, _, name) in pairwise(extents):
            if begin < end:
                raise self._damaged(
                    f"tensor {name!r} at offset {begin} overlaps {before!r}, which ends at {end}"
                )
        return MappingProxyType(tensors)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
