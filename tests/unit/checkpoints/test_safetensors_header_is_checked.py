"""A safetensors file is read as stored, and every offset of its header is checked against the file."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from edgeseek.checkpoints.safetensors import SafetensorsFile
from edgeseek.errors import CheckpointError, CheckpointFormatError, UnsupportedCheckpointError


def _bytes(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _entry(dtype: Any, shape: Any, offsets: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def _open(folder: Path, data: bytes) -> dict[str, bytes]:
    path = folder / "model.safetensors"
    path.write_bytes(data)
    file = SafetensorsFile(path)
    try:
        return {
            name: tensor.read_rows(0, tensor.rows).tobytes()
            for name, tensor in file.tensors.items()
            if tensor.dtype in ("F32", "F16", "BF16")
        }
    finally:
        file.close()


SOUND = {
    "__metadata__": {"format": "pt"},
    "b": _entry("BF16", [2, 3], [8, 20]),
    "a": _entry("F32", [2], [0, 8]),
    "i": _entry("I64", [1], [20, 28]),
    "s": _entry("F16", [], [28, 30]),
    "e": _entry("F32", [0, 4], [30, 30]),
}
DATA = bytes(range(30))


def test_tensors_are_the_stored_bytes_in_tiles_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(_bytes(SOUND, DATA))
    file = SafetensorsFile(path)
    assert list(file.tensors) == ["a", "b", "i", "e", "s"] or list(file.tensors) == ["a", "b", "i", "s", "e"]
    tensor = file.tensors["b"]
    assert (tensor.dtype, tensor.shape, tensor.rows) == ("BF16", (2, 3), 2)
    assert tensor.read_rows(1, 2).tobytes() == DATA[14:20]
    assert file.tensors["a"].read_rows(0, 1).tobytes() == DATA[:8]
    assert file.tensors["s"].read_rows(0, 1).tobytes() == DATA[28:30]
    assert file.tensors["e"].read_rows(0, 0).size == 0
    file.close()


def test_a_file_of_the_safetensors_package_is_read_exactly(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    arrays: dict[str, np.ndarray] = {
        "w": generator.standard_normal((7, 5)).astype(np.float32),
        "h": generator.standard_normal((3, 4, 2)).astype(np.float16),
        "v": generator.standard_normal(9).astype(np.float32),
    }
    save_file(arrays, tmp_path / "model.safetensors")
    file = SafetensorsFile(tmp_path / "model.safetensors")
    for name, array in arrays.items():
        tensor = file.tensors[name]
        assert tensor.shape == array.shape
        assert tensor.read_rows(0, tensor.rows).tobytes() == array.tobytes()
    assert file.tensors["h"].rows == 12
    file.close()


def test_a_type_that_cannot_be_converted_is_named_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(_bytes({"w": _entry("F8_E4M3", [2, 2], [0, 4])}, bytes(4)))
    file = SafetensorsFile(path)
    with pytest.raises(
        UnsupportedCheckpointError, match=r"model\.safetensors: tensor 'w' is stored as F8_E4M3"
    ):
        file.tensors["w"].read_rows(0, 2)
    file.close()


def _changed(**changes: Any) -> bytes:
    return _bytes({**SOUND, **changes}, DATA)


DAMAGED = {
    "empty": (b"", "is empty"),
    "too short": (b"\1\0\0", "3 bytes are too few"),
    "header beyond the file": (
        struct.pack("<Q", 2**63) + b"{}",
        "header of 9223372036854775808 bytes is longer",
    ),
    "no JSON": (_bytes(b"{nope", b""), "not valid JSON"),
    "no UTF-8": (_bytes(b'{"\xff": 1}', b""), "not UTF-8 at byte 2"),
    "deep JSON": (_bytes(b"[" * 100_000, b""), "nested too deeply|not valid JSON"),
    "no object": (_bytes([1], b""), "JSON list where an object is needed"),
    "tensor twice": (_bytes(b'{"a": 1, "a": 2}', b""), "key 'a' occurs twice"),
    "entry no object": (_changed(a=3), "entry of tensor 'a' is no object"),
    "no dtype": (_changed(a=_entry(None, [2], [0, 8])), "'a' has the dtype None"),
    "negative shape": (_changed(a=_entry("F32", [-2], [0, 8])), r"'a' has the shape \[-2\]"),
    "shape of text": (_changed(a=_entry("F32", "2", [0, 8])), "'a' has the shape '2'"),
    "shape of truths": (_changed(a=_entry("F32", [True], [0, 8])), r"'a' has the shape \[True\]"),
    "absurd axes": (_changed(a=_entry("F32", [1] * 99, [0, 8])), r"'a' has the shape \[1, 1, "),
    "one offset": (_changed(a=_entry("F32", [2], [0])), r"'a' has the data_offsets \[0\]"),
    "fractional offset": (_changed(a=_entry("F32", [2], [0, 8.0])), r"data_offsets \[0, 8\.0\]"),
    "offsets reversed": (
        _changed(a=_entry("F32", [2], [8, 0])),
        "'a' spans bytes 8 to 0 of 30 bytes of data",
    ),
    "offset beyond": (
        _changed(i=_entry("I64", [9], [20, 92])),
        "'i' spans bytes 20 to 92 of 30 bytes of data",
    ),
    "wrong length": (
        _changed(a=_entry("F32", [1], [0, 8])),
        r"'a' of F32 \[1\] takes 4 bytes, its offsets span 8",
    ),
    "absurd shape": (_changed(a=_entry("F32", [2**62, 2**62], [0, 8])), "its offsets span 8"),
    "overlap": (_changed(b=_entry("BF16", [2, 3], [4, 16])), "starts at 4 instead of 8 and overlaps"),
    "gap": (_bytes({"a": _entry("F32", [1], [4, 8])}, bytes(8)), "starts at 4 instead of 0 and leaves a gap"),
    "bytes left": (_bytes(SOUND, DATA + b"x"), r"tensors end at byte \d+ and the file has \d+ bytes"),
    "half bytes": (_bytes({"a": _entry("F4", [3], [0, 1])}, b"\0"), "3 values of F4 do not fill whole bytes"),
    "long name": (_bytes({"n" * 2000: _entry("F32", [1], [0, 4])}, bytes(4)), "has 2000 characters"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_header_is_named_with_the_numbers(tmp_path: Path, what: str) -> None:
    data, message = DAMAGED[what]
    with pytest.raises(CheckpointFormatError, match=message) as caught:
        _open(tmp_path, data)
    assert "model.safetensors" in str(caught.value)
    assert "download" in str(caught.value)


def test_an_absurd_header_length_allocates_nothing_large(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 30))
    with path.open("rb+") as file:
        file.truncate((1 << 30) + 8)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointFormatError, match="header has 1073741824 bytes, more than"):
            SafetensorsFile(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_truncation_at_every_byte_is_a_format_error(tmp_path: Path) -> None:
    data = _bytes(SOUND, DATA)
    for length in range(len(data)):
        with pytest.raises(CheckpointFormatError):
            _open(tmp_path, data[:length])


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["F32", "BF16", "I64", "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
_ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F16", "BF16", "F4", "Q"]) | _VALUES,
        "shape": st.lists(st.integers(-1, 4) | st.just(2**62), max_size=3) | _VALUES,
        "data_offsets": st.lists(st.integers(-1, 40), max_size=3) | _VALUES,
    }
)


@given(
    header=st.dictionaries(st.text(max_size=3), _ENTRIES | _VALUES, max_size=4), data=st.binary(max_size=40)
)
@settings(max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_header_says_only_checkpoint_errors_escape(
    tmp_path: Path, header: dict[str, Any], data: bytes
) -> None:
    try:
        _open(tmp_path, _bytes(header, data))
    except CheckpointError:
        return


@given(data=st.data())
@settings(max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_bytes_are_changed_only_checkpoint_errors_escape(
    tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(_bytes(SOUND, DATA))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + 1] = data.draw(st.binary(max_size=3))
    try:
        _open(tmp_path, bytes(content))
    except CheckpointError:
        return
