"""The bytes ahead of a GGUF's data: version 3, as `checkpoints/gguf_header.py` describes and reads it.

Owns which of GGUF's types a Python value gets. Knows nothing of what keys or tensors mean.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeseek.checkpoints.gguf_header import DEFAULT_ALIGNMENT, MAGIC
from edgeseek.checkpoints.tensor_types import GGUF_TYPES, stored_bytes

VERSION = 3
ALIGNMENT = DEFAULT_ALIGNMENT
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY, _U64, _I64 = 4, 5, 6, 7, 8, 9, 10, 11


@dataclass(frozen=True)
class TensorInfo:
    """A tensor to be written: `shape` has the slowest axis first, `dtype` is a name of `GGUF_TYPES`."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of its values, without what aligns the next tensor."""
        rows = 1 if len(self.shape) == 1 else self.shape[0]
        size = stored_bytes(self.dtype, rows, self.shape[-1])
        if size is None:
            raise ValueError(f"{self.dtype} is no type of a GGUF tensor")
        return size


def padding(size: int) -> int:
    """Bytes from `size` to the next multiple of the alignment."""
    return -size % ALIGNMENT


def header(metadata: Mapping[str, Any], tensors: Sequence[TensorInfo]) -> bytes:
    """Everything ahead of the first tensor's values, padding included.

    Tensors follow each other in order, each aligned. Raises ValueError for a value that GGUF cannot hold.
    """
    numbers = {name: number for number, name in GGUF_TYPES.items()}
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts.append(_text(key))
        parts.append(_typed(key, value))
    offset = 0
    for tensor in tensors:
        sizes = tensor.shape[::-1]
        parts.append(_text(tensor.name))
        parts.append(struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, numbers[tensor.dtype], offset))
        offset += tensor.size + padding(tensor.size)
    start = b"".join(parts)
    return start + bytes(padding(len(start)))


def _typed(key: str, value: Any) -> bytes:
    """A value's type and its bytes: counts as u32, other whole numbers as i32, u64 or i64, floats as f32."""
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return _whole(key, value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, list):
        return struct.pack("<I", _ARRAY) + _array(key, value)
    raise ValueError(f"the metadata {key!r} is {value!r}, which GGUF cannot hold")


def _whole(key: str, value: int) -> bytes:
    for kind, code, low, high in (
        (_U32, "I", 0, 2**32),
        (_I32, "i", -(2**31), 2**31),
        (_U64, "Q", 0, 2**64),
        (_I64, "q", -(2**63), 2**63),
    ):
        if low <= value < high:
            return struct.pack(f"<I{code}", kind, value)
    raise ValueError(f"the metadata {key!r} is {value}, which takes more than 64 bits")


def _array(key: str, items: list[Any]) -> bytes:
    if all(isinstance(item, str) for item in items):
        return struct.pack("<IQ", _STRING, len(items)) + b"".join(map(_text, items))
    if all(isinstance(item, bool) for item in items):
        return struct.pack("<IQ", _BOOL, len(items)) + bytes(items)
    if all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        # Token types are signed in every GGUF; nothing else in one is a list of larger numbers.
        kind, dtype = (_I32, "<i4") if all(-(2**31) <= item < 2**31 for item in items) else (_I64, "<i8")
        return struct.pack("<IQ", kind, len(items)) + np.array(items, dtype).tobytes()
    if all(isinstance(item, float) for item in items):
        return struct.pack("<IQ", _F32, len(items)) + np.array(items, "<f4").tobytes()
    raise ValueError(f"the metadata array {key!r} mixes kinds of values, which GGUF cannot hold")


def _text(value: str) -> bytes:
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data
