"""A GGUF is there whole or not at all, and what cannot be written is refused by name."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from edgeseek.errors import EdgeseekError, StorageError, TokenizerError, UnsupportedCheckpointError
from edgeseek.export.gguf import write_gguf
from edgeseek.export.source import CheckpointSource
from tests.make_models.tiny import CASES, write
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint
from tests.unit.package.disks import WatchedFiles
from tests.unit.package.tiny_checkpoints import folder as fake_folder

TIED = CASES["llama-tied"]


def export(folder: Path, target: Path, **options: object) -> None:
    write_gguf(folder, target, types=lambda *_: "Q4_0", **options)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(TIED, tmp_path / "folder")


@pytest.mark.parametrize("failing", ["make_folder", "create", "write", "rename", "sync_folder"])
def test_a_full_disk_leaves_nothing(folder: Path, tmp_path: Path, failing: str) -> None:
    def watch(operation: str, _path: Path, _with: object) -> None:
        if operation == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    target = tmp_path / "out" / "model.gguf"
    target.parent.mkdir()
    with pytest.raises(StorageError, match="no space left while writing .*model.gguf"):
        export(folder, target, files=WatchedFiles(watch))
    assert [path for path in target.parent.iterdir() if path != target] == []
    assert target.exists() == (failing == "sync_folder")


def test_an_interruption_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    def progress(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(folder, tmp_path / "out" / "model.gguf", progress=progress)
    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_killed_writer_left_is_removed_by_the_next(folder: Path, tmp_path: Path) -> None:
    left = tmp_path / "out" / ".model.gguf.4711-0123abcd.partial"
    left.mkdir(parents=True)
    (left / "model.gguf").write_bytes(b"GGUF")
    export(folder, tmp_path / "out" / "model.gguf")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.gguf"]


def test_too_little_space_is_said_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the GGUF takes 0 MB and .* has 0 MB free"):
        export(folder, tmp_path / "model.gguf", files=WatchedFiles(lambda *_: None, free=1000))
    assert not (tmp_path / "model.gguf").exists()


def test_an_existing_file_is_replaced_only_by_force(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    target.write_text("precious")
    with pytest.raises(StorageError, match="model.gguf exists already"):
        export(folder, target)
    assert target.read_text() == "precious"
    export(folder, target, force=True)
    assert target.read_bytes().startswith(b"GGUF")


def test_a_folder_is_never_replaced(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is a folder; give the name of a file"):
        export(folder, folder, force=True)
    assert (folder / "config.json").exists()


@pytest.mark.parametrize(("value", "complaint"), [(np.nan, "not finite"), (1e6, "65504")])
def test_weights_that_cannot_be_held_are_named(tmp_path: Path, value: float, complaint: str) -> None:
    spoiled = np.full((64, 64), value, np.float32)
    name = "model.layers.1.self_attn.o_proj.weight"
    folder = write(TIED, tmp_path / "folder", {name: spoiled})
    with pytest.raises(UnsupportedCheckpointError, match=f"layers.1.attn.o.weight.*Q4_0: .*{complaint}"):
        export(folder, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def test_a_scaling_that_gguf_cannot_say_is_refused(tmp_path: Path) -> None:
    folder = write(CASES["llama-dynamic-rope"], tmp_path / "folder")
    with pytest.raises(UnsupportedCheckpointError, match="'dynamic'.* cannot be written as GGUF"):
        export(folder, tmp_path / "model.gguf")


def test_windows_that_differ_by_layer_are_refused(tmp_path: Path) -> None:
    folder = write(CASES["qwen2-sliding-window"], tmp_path / "folder")
    with pytest.raises(UnsupportedCheckpointError, match=r"spans of \[0, 8\]"):
        export(folder, tmp_path / "model.gguf")


def test_biases_that_llama_cpp_would_not_read_are_refused(tmp_path: Path) -> None:
    folder = write(CASES["qwen3-biases"], tmp_path / "folder")
    with pytest.raises(UnsupportedCheckpointError, match=r"no name for layers.0.attn.k.bias"):
        export(folder, tmp_path / "model.gguf")


def test_a_family_that_gguf_is_not_written_for_is_refused(tmp_path: Path) -> None:
    folder = write(CASES["deepseek-v2-yarn"], tmp_path / "folder")
    with pytest.raises(
        UnsupportedCheckpointError, match="deepseek_v2 cannot be written as GGUF yet; .* llama"
    ):
        export(folder, tmp_path / "model.gguf")


def test_a_folder_without_a_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match="has no tokenizer.json"):
        export(folder, tmp_path / "model.gguf")


def test_a_tensor_without_a_name_in_gguf_is_refused(tmp_path: Path) -> None:
    checkpoint: FakeCheckpoint = fake_folder()
    source = CheckpointSource(checkpoint)
    source.tensors = {**source.tensors, "layers.0.attn.sinks": next(iter(source.tensors.values()))}
    with pytest.raises(EdgeseekError, match="no name for layers.0.attn.sinks"):
        write_gguf(source, tmp_path / "model.gguf", types=lambda *_: "F16")
