"""A Hugging Face folder: its shards are one set of tensors, its text files one set of assets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from edgeseek.checkpoints import open_checkpoint
from edgeseek.errors import (
    CheckpointError,
    CheckpointFormatError,
    UnknownModelError,
    UnsupportedCheckpointError,
)
from tests.unit.checkpoints import gguf_bytes

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(4, dtype=np.float16).reshape(4, 1)
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture
def single(tmp_path: Path) -> Path:
    folder = tmp_path / "single"
    folder.mkdir()
    _json(folder / "config.json", {"model_type": "llama", "vocab_size": 7})
    save_file({"a": A, "b": B}, folder / "model.safetensors")
    return folder


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = tmp_path / "sharded"
    folder.mkdir()
    _json(folder / "config.json", {"model_type": "qwen2"})
    save_file({"a": A}, folder / SHARDS[0])
    save_file({"b": B}, folder / SHARDS[1])
    _json(folder / INDEX, {"metadata": {}, "weight_map": {"a": SHARDS[0], "b": SHARDS[1]}})
    return folder


def test_one_file_of_weights(single: Path) -> None:
    with open_checkpoint(single) as checkpoint:
        assert checkpoint.kind == "huggingface"
        assert checkpoint.path == single
        assert checkpoint.raw_config == {"model_type": "llama", "vocab_size": 7}
        assert set(checkpoint.tensors) == {"a", "b"}
        assert checkpoint.tensors["a"].read_rows(1, 2).tobytes() == A[1:].tobytes()


def test_shards_are_joined(sharded: Path) -> None:
    with open_checkpoint(sharded) as checkpoint:
        assert {name: tensor.shape for name, tensor in checkpoint.tensors.items()} == {
            "a": (2, 3),
            "b": (4, 1),
        }
        assert checkpoint.tensors["b"].read_rows(0, 4).tobytes() == B.tobytes()


def test_a_single_file_wins_over_an_index_as_in_transformers(sharded: Path) -> None:
    save_file({"c": A}, sharded / "model.safetensors")
    with open_checkpoint(sharded) as checkpoint:
        assert set(checkpoint.tensors) == {"c"}


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / SHARDS[1]).unlink()
    with pytest.raises(CheckpointFormatError, match=rf"lacks the shard {SHARDS[1]}.*download"):
        open_checkpoint(sharded)


def test_a_tensor_that_its_shard_lacks_is_named(sharded: Path) -> None:
    save_file({"other": B}, sharded / SHARDS[1])
    with pytest.raises(
        CheckpointFormatError, match=rf"says that {SHARDS[1]} holds tensor 'b', and it does not"
    ):
        open_checkpoint(sharded)


def test_a_tensor_in_two_shards_is_named(sharded: Path) -> None:
    save_file({"a": A, "b": B}, sharded / SHARDS[1])
    with pytest.raises(CheckpointFormatError, match=rf"'a' is in two shards .*{SHARDS[0]} and {SHARDS[1]}"):
        open_checkpoint(sharded)


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/x.safetensors", "a\\b.safetensors", "x.bin", 3]
)
def test_an_index_cannot_reach_outside_the_folder(sharded: Path, name: Any) -> None:
    _json(sharded / INDEX, {"weight_map": {"a": name}})
    with pytest.raises(CheckpointFormatError, match="which is no safetensors file beside it"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": [1]}])
def test_an_index_without_a_map_is_named(sharded: Path, index: Any) -> None:
    _json(sharded / INDEX, index)
    with pytest.raises(CheckpointFormatError, match=r"index\.json has no weight_map"):
        open_checkpoint(sharded)


def test_shards_without_an_index_are_refused(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    with pytest.raises(
        CheckpointFormatError, match=r"2 safetensors shards .* and no model\.safetensors\.index"
    ):
        open_checkpoint(sharded)


def test_pickles_are_refused_and_named(single: Path) -> None:
    (single / "model.safetensors").rename(single / "pytorch_model.bin")
    with pytest.raises(UnsupportedCheckpointError, match=r"only as pytorch_model\.bin, a pickle"):
        open_checkpoint(single)


def test_a_folder_without_weights_is_named(single: Path) -> None:
    (single / "model.safetensors").unlink()
    with pytest.raises(CheckpointFormatError, match="holds no weights"):
        open_checkpoint(single)


def test_a_folder_without_a_config_is_named(single: Path) -> None:
    (single / "config.json").unlink()
    with pytest.raises(CheckpointFormatError, match=r"single holds no config\.json"):
        open_checkpoint(single)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_config_is_named(single: Path, content: bytes) -> None:
    (single / "config.json").write_bytes(content)
    with pytest.raises(CheckpointFormatError, match=r"config\.json"):
        open_checkpoint(single)


def test_nothing_at_the_path_is_an_unknown_model(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match=r"no file or folder .*nowhere"):
        open_checkpoint(tmp_path / "nowhere")
    with pytest.raises(UnknownModelError, match="no usable path|no file or folder"):
        open_checkpoint(Path("a\0b"))


def test_a_shard_given_by_itself_names_its_folder(single: Path) -> None:
    with pytest.raises(CheckpointFormatError, match=f"give the path of its folder, {single}"):
        open_checkpoint(single / "model.safetensors")


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(CheckpointFormatError, match="not a regular file"):
        open_checkpoint(tmp_path / "m.gguf")


def test_a_folder_with_one_gguf_is_that_gguf(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_bytes.small().to_bytes())
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.kind == "gguf"
        assert checkpoint.path == tmp_path / "m.gguf"
    (tmp_path / "n.gguf").write_bytes(gguf_bytes.small().to_bytes())
    with pytest.raises(
        CheckpointFormatError, match=r"2 GGUF files; give the path of one of m\.gguf, n\.gguf"
    ):
        open_checkpoint(tmp_path)


def test_text_files_arrive_as_stored(single: Path) -> None:
    (single / "tokenizer.json").write_bytes(b'{"model": 1}')
    _json(single / "tokenizer_config.json", {"bos_token": "<s>", "chat_template": "T"})
    _json(single / "generation_config.json", {"temperature": 0.6})
    with open_checkpoint(single) as checkpoint:
        assets = checkpoint.text_assets
    assert assets.tokenizer_json == b'{"model": 1}'
    assert assets.tokenizer_config == {"bos_token": "<s>", "chat_template": "T"}
    assert assets.generation_config == {"temperature": 0.6}
    assert assets.chat_template == "T"
    assert assets.gguf_metadata == {}


def test_absent_text_files_are_empty(single: Path) -> None:
    with open_checkpoint(single) as checkpoint:
        assets = checkpoint.text_assets
    assert (assets.tokenizer_json, assets.chat_template) == (None, None)
    assert (assets.tokenizer_config, assets.generation_config) == ({}, {})


TOOL = {"name": "tool_use", "template": "tools"}
DEFAULT = {"name": "default", "template": "plain"}


@pytest.mark.parametrize(
    ("inside", "json_file", "jinja_file", "expected"),
    [
        ("inside", None, None, "inside"),
        ([TOOL, DEFAULT], None, None, "plain"),
        ([TOOL], None, None, "tools"),
        ("inside", {"chat_template": "beside"}, None, "beside"),
        ("inside", {"chat_template": "beside"}, "jinja", "jinja"),
        (None, None, "{{ 多 }}", "{{ 多 }}"),
        (None, None, None, None),
        ("", None, None, None),
    ],
)
def test_the_chat_template_that_transformers_would_use(
    single: Path, inside: Any, json_file: Any, jinja_file: str | None, expected: str | None
) -> None:
    _json(single / "tokenizer_config.json", {"chat_template": inside})
    if json_file is not None:
        _json(single / "chat_template.json", json_file)
    if jinja_file is not None:
        (single / "chat_template.jinja").write_text(jinja_file, encoding="utf-8")
    with open_checkpoint(single) as checkpoint:
        assert checkpoint.text_assets.chat_template == expected


@pytest.mark.parametrize("template", [3, {"a": 1}, [3], [{"name": "default"}]])
def test_a_malformed_template_is_named(single: Path, template: Any) -> None:
    _json(single / "tokenizer_config.json", {"chat_template": template})
    with (
        open_checkpoint(single) as checkpoint,
        pytest.raises(CheckpointFormatError, match=r"chat_template in .*tokenizer_config\.json is neither"),
    ):
        _ = checkpoint.text_assets


def test_reading_after_close_is_refused(sharded: Path) -> None:
    checkpoint = open_checkpoint(sharded)
    tensor = checkpoint.tensors["b"]
    checkpoint.close()
    with pytest.raises(CheckpointError, match="was closed"):
        tensor.read_rows(0, 1)
