"""The digest covers names, sizes and contents of exactly the files a checkpoint is read from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from edgeseek.checkpoints import open_checkpoint
from tests.unit.checkpoints import gguf_bytes


def _digest(path: Path) -> str:
    with open_checkpoint(path) as checkpoint:
        return checkpoint.digest()


def _by_hand(*files: Path) -> str:
    content = b"".join(
        file.name.encode() + b"\0" + len(file.read_bytes()).to_bytes(8, "little") + file.read_bytes()
        for file in files
    )
    return hashlib.sha256(content).hexdigest()


def test_a_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes.small().to_bytes())
    assert _digest(path) == _by_hand(path)


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "README.md").write_text("not part of it")
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    files = [tmp_path / name for name in ("config.json", "model.safetensors", "tokenizer.json")]
    first = _digest(tmp_path)
    assert first == _by_hand(*files)
    (tmp_path / "README.md").write_text("still not part of it")
    assert _digest(tmp_path) == first
    (tmp_path / "chat_template.jinja").write_text("x")
    assert _digest(tmp_path) == _by_hand(tmp_path / "chat_template.jinja", *files)
