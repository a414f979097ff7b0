"""Everything bad that a user can hand to the command: one line that says what and what to do, nothing else.

The command runs with its real services, on real files and the native core.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from edgeseek.cli import main
from edgeseek.cli.services import Services
from edgeseek.cli.terminal import Terminal
from edgeseek.settings import Settings
from tests.make_models.tiny import CASES, VOCAB_SIZE, write
from tests.unit.checkpoints import gguf_bytes
from tests.unit.cli.fakes import Outcome, Stream

MODEL = CASES["llama-tied"]


def run(home: Path, *words: str) -> Outcome:
    """`edgeseek run` with those words."""
    out, err = Stream(), Stream()
    services = Services(Settings(cache_dir=home, threads=1), Terminal(Stream(), out, err))
    return Outcome(main(["run", *words], services), out.getvalue(), err.getvalue())


def gguf(folder: Path, data: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return path


def truncated(folder: Path) -> Path:
    return gguf(folder, gguf_bytes.small().to_bytes()[:-1])


def wrong_magic(folder: Path) -> Path:
    parts = gguf_bytes.small()
    parts.magic = b"GGML"
    return gguf(folder, parts.to_bytes())


def offset_beyond_the_file(folder: Path) -> Path:
    parts = gguf_bytes.small()
    parts.records = [gguf_bytes.record("norm.weight", [8], 0, 1 << 40)]
    return gguf(folder, parts.to_bytes())


def unknown_tensor_type(folder: Path) -> Path:
    parts = gguf_bytes.small()
    parts.records = [gguf_bytes.record("norm.weight", [256], 16, 0)]
    return gguf(folder, parts.to_bytes())


def missing_tensor(folder: Path) -> Path:
    weights = write(MODEL, folder) / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, weights)
    return folder


def not_finite(folder: Path) -> Path:
    return write(MODEL, folder, {"model.norm.weight": np.full(MODEL.hidden_size, np.nan, np.float32)})


def with_config(**changes: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        config = write(MODEL, folder) / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), **changes}))
        return folder

    return make


def without_tokenizer(folder: Path) -> Path:
    (write(MODEL, folder) / "tokenizer.json").unlink()
    return folder


def empty_shard(folder: Path) -> Path:
    """Two shards, the second of which was never filled."""
    weights = write(MODEL, folder) / "model.safetensors"
    tensors = load_file(weights)
    weights.unlink()
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    weight_map = {name: names[name.startswith("model.layers.1.")] for name in tensors}
    save_file({key: tensors[key] for key in tensors if weight_map[key] == names[0]}, folder / names[0])
    (folder / names[1]).write_bytes(b"")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def missing_shard(folder: Path) -> Path:
    (empty_shard(folder) / "model-00002-of-00002.safetensors").unlink()
    return folder


def bias_nobody_announced(folder: Path) -> Path:
    bias = np.ones(MODEL.heads * MODEL.head_dim, np.float32)
    return write(MODEL, folder, {"model.layers.1.self_attn.q_proj.bias": bias})


def head_beside_a_tied_embedding(folder: Path) -> Path:
    return write(MODEL, folder, {"lm_head.weight": np.ones((VOCAB_SIZE, MODEL.hidden_size), np.float32)})


def unknown_family_of_gguf(folder: Path) -> Path:
    parts = gguf_bytes.small()
    parts.entries[0] = gguf_bytes.entry("general.architecture", gguf_bytes.STRING, gguf_bytes.text("rwkv7"))
    return gguf(folder, parts.to_bytes())


def absurd_header(folder: Path) -> Path:
    (write(MODEL, folder) / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    return folder


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (truncated, ["model.gguf", "half.weight", "download it again"]),
        (wrong_magic, ["model.gguf", "GGML", "give the path of a .gguf file"]),
        (offset_beyond_the_file, ["norm.weight", "spans bytes 10995116", "the file ends at byte"]),
        (unknown_tensor_type, ["norm.weight", "IQ2_XXS", "use a GGUF whose tensors are F32,"]),
        (missing_tensor, ["model.layers.1.mlp.up_proj.weight", "download it again"]),
        (not_finite, ["model.norm.weight", "not finite"]),
        (
            with_config(rope_scaling={"rope_type": "mrope", "factor": 4.0}),
            ["mrope", "known are default, linear"],
        ),
        (
            with_config(architectures=["GPT2LMHeadModel"]),
            ["GPT2LMHeadModel", "known are ", "LlamaForCausalLM"],
        ),
        (unknown_family_of_gguf, ["unknown architecture rwkv7", "known are ", "llama", "qwen2", "qwen3"]),
        (without_tokenizer, ["tokenizer.json"]),
        (empty_shard, ["model-00002-of-00002.safetensors", "download it again"]),
        (missing_shard, ["model-00002-of-00002.safetensors"]),
        (bias_nobody_announced, ["model.layers.1.self_attn.q_proj.bias", "does not use"]),
        (head_beside_a_tied_embedding, ["'lm_head.weight' holds other values", "tie_word_embeddings"]),
        (absurd_header, ["model.safetensors", str(1 << 60), "download it again"]),
    ],
)
def test_a_bad_checkpoint(make: Callable[[Path], Path], told: list[str], tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    found = run(tmp_path / "home", str(make(tmp_path / "checkpoint")), "--prompt", "x")
    assert (found.code, found.out) == (1, "")
    last = found.err.splitlines()[-1]
    assert last.startswith("edgeseek: ")
    for part in told:
        assert part in last
    assert "Traceback" not in found.err
    assert nothing_is_left(tmp_path / "home")


def nothing_is_left(home: Path) -> bool:
    """Whether there is no file below `home` but locks."""
    return all(path.name.endswith(".lock") for path in home.rglob("*") if path.is_file())


def test_a_name_that_is_no_model(tmp_path: Path) -> None:
    found = run(tmp_path, "smollm2-153m", "--prompt", "x")
    assert (found.code, found.out) == (2, "")
    assert found.error_line.startswith(
        "edgeseek: there is no model 'smollm2-153m'; did you mean smollm2-135m"
    )


def test_a_path_where_nothing_is(tmp_path: Path) -> None:
    found = run(tmp_path, str(tmp_path / "missing.gguf"), "--prompt", "x")
    assert found.code == 2
    assert "there is no file or folder" in found.error_line


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write(MODEL, tmp_path_factory.mktemp("checkpoint")))


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--context", "32", "--raw"], 2, "tokens and the context holds 32; shorten the prompt"),
        (["--context", "4096"], 2, "a context of 4096 tokens was asked for and the model knows 512"),
        (["--scheme", "q3"], 2, "unknown scheme 'q3'; choose one of f32, f16, q8, q4"),
    ],
)
def test_what_does_not_fit_the_model(
    home: Path, checkpoint: str, words: list[str], code: int, told: str
) -> None:
    found = run(home, checkpoint, "--prompt", "a long prompt " * 20, *words)
    assert (found.code, found.out) == (code, "")
    last = found.err.splitlines()[-1]
    assert last.startswith("edgeseek: ")
    assert told in last
    assert "Traceback" not in found.err


def test_a_disk_that_fills_up_during_the_import(tmp_path: Path, checkpoint: str) -> None:
    """Under a limit on the size of files, as a full disk would end the writing."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    home = tmp_path / "home"
    child = subprocess.run(
        [sys.executable, "-m", "edgeseek", "pull", checkpoint],
        capture_output=True,
        text=True,
        env={**os.environ, "EDGESEEK_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=limit,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stdout) == (1, "")
    assert child.stderr.splitlines()[-1].startswith("edgeseek: no space left while writing ")
    assert "Traceback" not in child.stderr
    assert nothing_is_left(home)
