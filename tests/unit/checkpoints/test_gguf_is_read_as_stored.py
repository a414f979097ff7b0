"""What a GGUF holds arrives unchanged: metadata, text assets, and the bytes of every tensor type."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from edgeseek.checkpoints import open_checkpoint
from edgeseek.checkpoints.gguf import GgufCheckpoint
from edgeseek.errors import CheckpointError, UnsupportedCheckpointError
from tests.unit.checkpoints import gguf_bytes as raw

#: name -> (values per block, bytes per block), from ggml-common.h, written down here independently.
TYPES = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}


def _write(path: Path, build) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    build(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_every_type_are_the_stored_bytes(tmp_path: Path, dtype: str) -> None:
    values, size = TYPES[dtype]
    rows, columns = 5, values * 3
    stored = np.random.default_rng(1).integers(0, 256, (rows, 3 * size), dtype=np.uint8)

    def build(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("before", np.arange(3, dtype=np.float32))
        writer.add_tensor("w", stored, raw_dtype=gguf.GGMLQuantizationType[dtype])

    with open_checkpoint(_write(tmp_path / "m.gguf", build)) as checkpoint:
        tensor = checkpoint.tensors["w"]
        assert (tensor.name, tensor.dtype, tensor.shape) == ("w", dtype, (rows, columns))
        assert np.array_equal(tensor.read_rows(0, 5), stored)
        assert np.array_equal(tensor.read_rows(2, 4), stored[2:4])
        assert tensor.read_rows(3, 3).shape == (0, 3 * size)


def test_a_vector_is_one_row(tmp_path: Path) -> None:
    vector = np.array([1.5, -2.0, 3.25], dtype=np.float32)
    path = _write(tmp_path / "m.gguf", lambda writer: writer.add_tensor("norm", vector))
    with open_checkpoint(path) as checkpoint:
        tensor = checkpoint.tensors["norm"]
        assert tensor.shape == (3,)
        assert tensor.read_rows(0, 1).tobytes() == vector.tobytes()


@pytest.mark.parametrize("span", [(0, 6), (-1, 2), (3, 2), (6, 6)])
def test_rows_that_are_not_there_are_refused(tmp_path: Path, span: tuple[int, int]) -> None:
    matrix = np.zeros((5, 4), dtype=np.float32)
    path = _write(tmp_path / "m.gguf", lambda writer: writer.add_tensor("w", matrix))
    with open_checkpoint(path) as checkpoint, pytest.raises(ValueError, match="which has 5"):
        checkpoint.tensors["w"].read_rows(*span)


def test_rows_are_read_only(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.gguf", lambda writer: writer.add_tensor("w", np.ones((2, 4), np.float32)))
    with open_checkpoint(path) as checkpoint:
        rows = checkpoint.tensors["w"].read_rows(0, 2)
        assert not rows.flags.writeable


def test_metadata_of_every_kind_arrives_and_vocabulary_arrays_go_to_the_text_assets(tmp_path: Path) -> None:
    def build(writer: gguf.GGUFWriter) -> None:
        writer.add_uint8("t.u8", 255)
        writer.add_int8("t.i8", -128)
        writer.add_uint16("t.u16", 65535)
        writer.add_int16("t.i16", -32768)
        writer.add_uint32("t.u32", 2**32 - 1)
        writer.add_int32("t.i32", -(2**31))
        writer.add_uint64("t.u64", 2**64 - 1)
        writer.add_int64("t.i64", -(2**63))
        writer.add_float32("t.f32", 0.5)
        writer.add_float64("t.f64", 0.1)
        writer.add_bool("t.bool", False)
        writer.add_string("t.text", "多 😀")
        writer.add_array("t.list", [1, 2, 3])
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["<s>", "Ġa", "é"])
        writer.add_token_types([3, 1, 1])
        writer.add_token_scores([0.0, -1.0, -2.5])
        writer.add_token_merges(["a b"])
        writer.add_add_bos_token(True)
        writer.add_bos_token_id(0)
        writer.add_chat_template("{{ messages }}")

    with open_checkpoint(_write(tmp_path / "m.gguf", build)) as checkpoint:
        config = checkpoint.raw_config
        assert config["general.architecture"] == "llama"
        assert {key: value for key, value in config.items() if key.startswith("t.")} == {
            "t.u8": 255,
            "t.i8": -128,
            "t.u16": 65535,
            "t.i16": -32768,
            "t.u32": 2**32 - 1,
            "t.i32": -(2**31),
            "t.u64": 2**64 - 1,
            "t.i64": -(2**63),
            "t.f32": 0.5,
            "t.f64": 0.1,
            "t.bool": False,
            "t.text": "多 😀",
            "t.list": [1, 2, 3],
        }
        assert config["tokenizer.ggml.bos_token_id"] == 0
        assert "tokenizer.ggml.tokens" not in config
        assets = checkpoint.text_assets
        assert assets.chat_template == "{{ messages }}"
        assert assets.tokenizer_json is None
        assert assets.gguf_metadata == {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": ["<s>", "Ġa", "é"],
            "tokenizer.ggml.token_type": [3, 1, 1],
            "tokenizer.ggml.scores": [0.0, -1.0, -2.5],
            "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.add_bos_token": True,
            "tokenizer.ggml.bos_token_id": 0,
            "tokenizer.chat_template": "{{ messages }}",
        }


def test_sampling_defaults_get_their_hugging_face_names(tmp_path: Path) -> None:
    parts = raw.small()
    parts.entries += [
        raw.entry("general.sampling.temp", raw.F32, struct.pack("<f", 0.6)),
        raw.entry("general.sampling.top_k", raw.I32, struct.pack("<i", 20)),
        raw.entry("general.sampling.penalty_repeat", raw.F32, struct.pack("<f", 1.05)),
    ]
    path = tmp_path / "m.gguf"
    path.write_bytes(parts.to_bytes())
    with GgufCheckpoint(path) as checkpoint:
        assert checkpoint.text_assets.generation_config == {
            "temperature": 0.6,
            "top_k": 20,
            "repetition_penalty": 1.05,
            "do_sample": True,
        }


def test_versions_2_and_3_read_alike(tmp_path: Path) -> None:
    found = []
    for version in (2, 3):
        parts = raw.small()
        parts.version = version
        path = tmp_path / f"v{version}.gguf"
        path.write_bytes(parts.to_bytes())
        with GgufCheckpoint(path) as checkpoint:
            rows = {name: tensor.read_rows(0, 1).tobytes() for name, tensor in checkpoint.tensors.items()}
            found.append((dict(checkpoint.raw_config), rows))
    assert found[0] == found[1]
    assert found[0][1]["norm.weight"] == bytes(range(32))
    assert found[0][1]["mat.weight"] == bytes(range(32, 66))


def test_a_declared_alignment_moves_the_data(tmp_path: Path) -> None:
    parts = raw.Gguf(
        entries=[raw.entry("general.alignment", raw.U32, struct.pack("<I", 256))],
        records=[raw.record("a", [4], 0, 0), raw.record("b", [4], 0, 256)],
        data=b"\1" * 16 + bytes(240) + b"\2" * 16,
        alignment=256,
    )
    path = tmp_path / "m.gguf"
    path.write_bytes(parts.to_bytes())
    with GgufCheckpoint(path) as checkpoint:
        assert checkpoint.tensors["a"].read_rows(0, 1).tobytes() == b"\1" * 16
        assert checkpoint.tensors["b"].read_rows(0, 1).tobytes() == b"\2" * 16


def test_integer_tensors_are_listed_and_refused_only_when_read(tmp_path: Path) -> None:
    parts = raw.Gguf(records=[raw.record("ids", [4], 26, 0)], data=bytes(16))
    path = tmp_path / "m.gguf"
    path.write_bytes(parts.to_bytes())
    with GgufCheckpoint(path) as checkpoint:
        assert checkpoint.tensors["ids"].dtype == "I32"
        with pytest.raises(UnsupportedCheckpointError, match=r"'ids' is stored as I32.*Q6_K"):
            checkpoint.tensors["ids"].read_rows(0, 1)


def test_a_file_without_tensors_is_a_vocabulary(tmp_path: Path) -> None:
    parts = raw.small()
    parts.records, parts.data = [], b""
    path = tmp_path / "vocab.gguf"
    path.write_bytes(parts.to_bytes())
    with GgufCheckpoint(path) as checkpoint:
        assert dict(checkpoint.tensors) == {}
        assert checkpoint.text_assets.gguf_metadata["tokenizer.ggml.tokens"] == ["a", "é", ""]


def test_a_mangled_author_does_not_keep_a_model_from_opening(tmp_path: Path) -> None:
    parts = raw.small()
    parts.entries.append(raw.entry("general.author", raw.STRING, raw.text(b"Andr\xe9")))
    path = tmp_path / "m.gguf"
    path.write_bytes(parts.to_bytes())
    with GgufCheckpoint(path) as checkpoint:
        assert checkpoint.raw_config["general.author"] == "Andr\N{REPLACEMENT CHARACTER}"


def test_a_vocabulary_of_152_thousand_tokens_and_merges_opens_well_within_a_second(tmp_path: Path) -> None:
    tokens = [f"token{i}" for i in range(152_064)]
    merges = [f"to ken{i}" for i in range(151_387)]
    parts = raw.Gguf(
        entries=[
            raw.entry("tokenizer.ggml.tokens", raw.ARRAY, raw.array(raw.STRING, len(tokens), _texts(tokens))),
            raw.entry("tokenizer.ggml.merges", raw.ARRAY, raw.array(raw.STRING, len(merges), _texts(merges))),
        ]
    )
    path = tmp_path / "vocab.gguf"
    path.write_bytes(parts.to_bytes())
    before = time.process_time()
    with GgufCheckpoint(path) as checkpoint:
        spent = time.process_time() - before
        assert checkpoint.text_assets.gguf_metadata["tokenizer.ggml.tokens"] == tokens
        assert checkpoint.text_assets.gguf_metadata["tokenizer.ggml.merges"] == merges
    assert spent < 1.0


def _texts(values: list[str]) -> bytes:
    return b"".join(map(raw.text, values))


def test_reading_a_large_tensor_keeps_little_of_it_resident(tmp_path: Path) -> None:
    rows, columns = 4096, 16384
    parts = raw.Gguf(records=[raw.record("w", [columns, rows], 0, 0)])
    path = tmp_path / "large.gguf"
    path.write_bytes(parts.to_bytes())
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size + rows * columns * 4)
    total = 0
    with GgufCheckpoint(path) as checkpoint:
        before = _mapped_resident()
        for start in range(0, rows, 64):
            total += int(checkpoint.tensors["w"].read_rows(start, start + 64)[:, ::512].sum())
        grown = _mapped_resident() - before
    assert total == 0
    assert grown < 64 << 20


def _mapped_resident() -> int:
    """Resident bytes of file mappings; a temporary folder in memory counts as shared."""
    lines = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    return 1024 * sum(int(lines[name].split()[0]) for name in ("RssFile", "RssShmem"))


def test_views_outlive_the_checkpoint_and_new_reads_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw.small().to_bytes())
    checkpoint = GgufCheckpoint(path)
    tensor = checkpoint.tensors["norm.weight"]
    rows = tensor.read_rows(0, 1)
    checkpoint.close()
    checkpoint.close()
    assert rows.tobytes() == bytes(range(32))
    with pytest.raises(CheckpointError, match=r"m\.gguf was closed"):
        tensor.read_rows(0, 1)


@pytest.mark.real_model
def test_a_real_file_agrees_with_the_gguf_package(test_model) -> None:
    path = test_model("SmolLM2-135M-Instruct.Q4_1.gguf")
    reader = gguf.GGUFReader(path)
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.tensors) == [tensor.name for tensor in reader.tensors]
        for expected in reader.tensors:
            tensor = checkpoint.tensors[expected.name]
            assert tensor.dtype == expected.tensor_type.name
            assert tensor.shape == tuple(reversed(expected.shape.tolist()))
            stored = expected.data.view(np.uint8).reshape(-1, tensor.read_rows(0, 1).shape[1])
            for start in (0, len(stored) - 1):
                assert np.array_equal(tensor.read_rows(start, start + 1), stored[start : start + 1])


@pytest.mark.real_model
def test_a_real_mixed_file_lists_its_types(test_model) -> None:
    with open_checkpoint(test_model("Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf")) as checkpoint:
        assert len(checkpoint.tensors) == 339
        assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {"F32", "Q4_K", "Q6_K"}
