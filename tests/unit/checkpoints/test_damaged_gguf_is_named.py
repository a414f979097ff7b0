"""A damaged or foreign GGUF gives an error that names the thing; nothing else escapes, memory stays small."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeseek.checkpoints import open_checkpoint
from edgeseek.errors import CheckpointError, CheckpointFormatError, UnsupportedCheckpointError
from tests.unit.checkpoints import gguf_bytes as raw

SMALL = raw.small().to_bytes()
HUGE = 2**62


def _open(folder: Path, data: bytes) -> None:
    """Open `data` as a file and read all it says it holds."""
    path = folder / "m.gguf"
    path.write_bytes(data)
    with open_checkpoint(path) as checkpoint:
        for tensor in checkpoint.tensors.values():
            rows = 1 if len(tensor.shape) == 1 else tensor.shape[0]
            if len(tensor.shape) <= 2 and tensor.dtype in ("F32", "F16", "Q8_0"):
                tensor.read_rows(0, rows)
        assert checkpoint.text_assets is not None


def _with(**changes) -> bytes:
    parts = raw.small()
    for name, value in changes.items():
        setattr(parts, name, value)
    return parts.to_bytes()


def _with_entry(key: str, kind: int, payload: bytes) -> bytes:
    return _with(entries=[*raw.small().entries, raw.entry(key, kind, payload)])


def _with_records(*records: bytes, data: bytes = bytes(4096)) -> bytes:
    return _with(records=list(records), data=data)


DAMAGED = {
    "wrong magic": (_with(magic=b"GGML"), r"begins with b'GGML' where a GGUF file begins with b'GGUF'"),
    "truncated in the counts": (SMALL[:10], r"the tensor count needs 8 bytes at byte 8 .* ends at byte 10"),
    "truncated tensor data": (
        SMALL[:-1],
        r"'half\.weight' of F16 \[2, 4\] spans bytes \d+ to \d+ and the file",
    ),
    "absurd metadata count": (_with(entry_count=HUGE), rf"claims {HUGE} metadata entries"),
    "absurd tensor count": (_with(tensor_count=HUGE), rf"claims {HUGE} tensors"),
    "absurd key length": (
        _with(entries=[struct.pack("<Q", HUGE)]),
        rf"key of metadata entry 0 of 1 has {HUGE} bytes",
    ),
    "absurd string length": (
        _with_entry("t", raw.STRING, struct.pack("<Q", HUGE)),
        rf"string 0 of 't' at byte \d+ claims {HUGE} bytes",
    ),
    "absurd array length": (
        _with_entry("t", raw.ARRAY, raw.array(raw.U8, HUGE, b"")),
        rf"the array 't' claims {HUGE} elements",
    ),
    "array beyond the file": (
        _with_entry("t", raw.ARRAY, raw.array(raw.F32, 1 << 21, b"")),
        r"the value of 't' needs 8388608 bytes",
    ),
    "strings beyond the file": (
        _with_entry("t", raw.ARRAY, raw.array(raw.STRING, 1 << 21, b"")),
        r"'t' claims 2097152 strings",
    ),
    "token that is no UTF-8": (
        _with_entry("tokenizer.t", raw.ARRAY, raw.array(raw.STRING, 2, raw.text("a") + raw.text(b"\xff"))),
        r"string 1 of 'tokenizer\.t' is not UTF-8",
    ),
    "key that is no UTF-8": (_with(entries=[raw.entry(b"\xff", raw.U8, b"\0")]), r"is not UTF-8 at byte 32"),
    "unknown value type": (_with_entry("t", 13, b""), r"'t' has the type 13, which GGUF does not define"),
    "unknown element type": (
        _with_entry("t", raw.ARRAY, raw.array(99, 1, b"")),
        r"elements of type 99, which GGUF does not define",
    ),
    "key twice": (_with_entry("test.flag", raw.BOOL, b"\0"), r"key 'test\.flag' occurs twice"),
    "alignment of 24": (
        _with_entry("general.alignment", raw.U32, struct.pack("<I", 24)),
        r"general\.alignment is 24 and must be a power of two",
    ),
    "alignment of 0": (
        _with_entry("general.alignment", raw.U32, struct.pack("<I", 0)),
        r"general\.alignment is 0",
    ),
    "no axes": (_with_records(raw.record("w", [], 0, 0)), r"'w' has 0 axes"),
    "five axes": (_with_records(raw.record("w", [1] * 5, 0, 0)), r"'w' has 5 axes"),
    "absurd axes": (_with_records(raw.text("w") + struct.pack("<I", 2**31)), r"'w' has 2147483648 axes"),
    "empty shape": (_with_records(raw.record("w", [4, 0], 0, 0)), r"'w' has the shape \[4, 0\]"),
    "absurd shape": (
        _with_records(raw.record("w", [HUGE, HUGE], 0, 0)),
        r"spans bytes \d+ to \d+ and the file",
    ),
    "half a block": (
        _with_records(raw.record("w", [48, 2], 2, 0)),
        r"rows of 48 values do not fill Q4_0 blocks",
    ),
    "offset beyond the file": (
        _with_records(raw.record("w", [4], 0, HUGE)),
        r"'w' of F32 \[4\] spans bytes \d+ to \d+ and the file ends at byte \d+",
    ),
    "misaligned offset": (
        _with_records(raw.record("w", [4], 0, 40)),
        r"'w' is at offset 40, no multiple .* 32",
    ),
    "overlap": (
        _with_records(raw.record("v", [16], 0, 0), raw.record("w", [4], 0, 32)),
        r"'w' at offset 32 overlaps 'v', which ends at 64",
    ),
    "tensor twice": (
        _with_records(raw.record("w", [4], 0, 0), raw.record("w", [4], 0, 32)),
        r"the tensor 'w' occurs twice",
    ),
    "empty": (b"", r"is empty"),
}
UNSUPPORTED = {
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), r"is a big-endian GGUF.*gguf-convert-endian"),
    "version 1": (_with(version=1), r"has GGUF version 1, not 2 or 3"),
    "version 4": (_with(version=4), r"has GGUF version 4, not 2 or 3"),
    "unknown tensor type": (
        _with_records(raw.record("w", [4], 999, 0)),
        r"tensor 'w' has the type 999 \(unknown to us\).*Q4_K_M",
    ),
    "known tensor type that is not read": (
        _with_records(raw.record("w", [256], 10, 0)),
        r"tensor 'w' has the type 10 \(Q2_K\)",
    ),
    "nested array": (
        _with_entry("t", raw.ARRAY, raw.array(raw.ARRAY, 1, raw.array(raw.U8, 0, b""))),
        r"'t' is an array of arrays",
    ),
    "split": (_with_entry("split.count", raw.U16, struct.pack("<H", 3)), r"one of 3 parts.*llama-gguf-split"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_a_format_error_with_the_numbers(tmp_path: Path, what: str) -> None:
    data, message = DAMAGED[what]
    with pytest.raises(CheckpointFormatError, match=message) as caught:
        _open(tmp_path, data)
    assert "m.gguf" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_a_sound_file_of_another_kind_is_unsupported(tmp_path: Path, what: str) -> None:
    data, message = UNSUPPORTED[what]
    with pytest.raises(UnsupportedCheckpointError, match=message) as caught:
        _open(tmp_path, data)
    assert "m.gguf" in str(caught.value)


@pytest.mark.parametrize("what", [name for name in DAMAGED if "absurd" in name or "beyond" in name])
def test_an_absurd_count_allocates_nothing_large(tmp_path: Path, what: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointFormatError):
            _open(tmp_path, DAMAGED[what][0])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_small_file_is_sound(tmp_path: Path) -> None:
    _open(tmp_path, SMALL)


def test_truncation_at_every_byte_is_a_format_error(tmp_path: Path) -> None:
    for length in range(len(SMALL)):
        with pytest.raises(CheckpointFormatError):
            _open(tmp_path, SMALL[:length])


def _mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(SMALL)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data) - 1))
        replacement = draw(
            st.one_of(
                st.binary(min_size=1, max_size=8),
                st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]).map(
                    lambda number: struct.pack("<Q", number)
                ),
            )
        )
        end = place + (len(replacement) if draw(st.booleans()) else 0)
        data[place:end] = replacement
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@given(data=st.composite(_mutated)())
@settings(max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_mutated_only_checkpoint_errors_escape(tmp_path: Path, data: bytes) -> None:
    try:
        _open(tmp_path, data)
    except CheckpointError:
        return


@given(data=st.binary(max_size=200).map(lambda tail: b"GGUF\3\0\0\0" + tail))
@settings(max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_follows_the_magic_only_checkpoint_errors_escape(tmp_path: Path, data: bytes) -> None:
    try:
        _open(tmp_path, data)
    except CheckpointError:
        return
