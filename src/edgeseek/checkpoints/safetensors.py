"""One safetensors file: its header, checked in full, and lazy tensors over its mapping.

Format (https://github.com/huggingface/safetensors#format): 8 bytes little-endian length of the header;
the header, a JSON object of name -> {dtype, shape, data_offsets}; the tensors, back to back, at those
offsets from the header's end. Owns that layout; knows nothing of folders or of what the tensors mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeseek.checkpoints.json_files import parse_json_object
from edgeseek.checkpoints.mapping import MappedFile, MappedTensor
from edgeseek.checkpoints.tensor_types import stored_bytes
from edgeseek.errors import CheckpointFormatError

#: The largest header we parse: some 300,000 tensors in one file. Bounds the memory of a damaged one.
MAX_HEADER_BYTES = 32 << 20
MAX_NAME_LENGTH = 1024


class SafetensorsFile:
    """An opened file; `tensors` maps names to lazy tensors, in the order of their bytes.

    Raises CheckpointFormatError naming the file, the tensor and the numbers if anything in the header
    contradicts the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = MappedFile(path)
        try:
            self.tensors: Mapping[str, MappedTensor] = self._read()
        except BaseException:
            self.file.close()
            raise

    def close(self) -> None:
        """Drop the mapping."""
        self.file.close()

    def _fail(self, what: str) -> CheckpointFormatError:
        return CheckpointFormatError(
            f"{self.path}: {what}; the file is damaged or incomplete, download it again"
        )

    def _read(self) -> dict[str, MappedTensor]:
        size = self.file.size
        if size < 8:
            raise self._fail(f"{size} bytes are too few for a safetensors file")
        length = int.from_bytes(self.file.buffer[:8], "little")
        if length > size - 8:
            raise self._fail(f"its header of {length} bytes is longer than the file of {size} bytes")
        if length > MAX_HEADER_BYTES:
            raise self._fail(f"its header has {length} bytes, more than the {MAX_HEADER_BYTES} of any model")
        header = parse_json_object(self.file.buffer[8 : 8 + length], f"{self.path}: the safetensors header")
        header.pop("__metadata__", None)
        start = 8 + length
        long = next((name for name in header if len(name) > MAX_NAME_LENGTH), None)
        if long is not None:
            raise self._fail(f"the name of a tensor has {len(long)} characters")
        found = [self._tensor(name, entry, start) for name, entry in header.items()]
        found.sort(key=lambda item: (item[1], item[2]))
        position = 0
        for tensor, begin, end in found:
            if begin != position:
                how = "overlaps the one before it" if begin < position else "leaves a gap before it"
                raise self._fail(f"tensor {tensor.name!r} starts at {begin} instead of {position} and {how}")
            position = end
        if start + position != size:
            raise self._fail(f"its tensors end at byte {start + position} and the file has {size} bytes")
        return {tensor.name: tensor for tensor, _, _ in found}

    def _tensor(self, name: str, entry: Any, start: int) -> tuple[MappedTensor, int, int]:
        if not isinstance(entry, dict):
            raise self._fail(f"the entry of tensor {name!r} is no object")
        dtype = entry.get("dtype")
        shape: Any = entry.get("shape")
        offsets: Any = entry.get("data_offsets")
        if not isinstance(dtype, str):
            raise self._fail(f"tensor {name!r} has the dtype {dtype!r}")
        if not _is_sizes(shape) or len(shape) > 8:
            raise self._fail(f"tensor {name!r} has the shape {_short(shape)}")
        if not _is_sizes(offsets) or len(offsets) != 2:
            raise self._fail(f"tensor {name!r} has the data_offsets {_short(offsets)}")
        begin, end = offsets
        available = self.file.size - start
        if not begin <= end <= available:
            raise self._fail(f"tensor {name!r} spans bytes {begin} to {end} of {available} bytes of data")
        try:
            columns = shape[-1] if shape else 1
            expected = stored_bytes(dtype, math.prod(shape[:-1]), columns)
        except ValueError as error:
            raise self._fail(f"tensor {name!r}: {error}") from error
        if expected is not None and expected != end - begin:
            raise self._fail(
                f"tensor {name!r} of {dtype} {shape} takes {expected} bytes, its offsets span {end - begin}"
            )
        return MappedTensor(self.file, name, dtype, tuple(shape), start + begin), begin, end


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
