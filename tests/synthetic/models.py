"""Tiny models as packages on the native backend, for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgeseek.checkpoints import open_checkpoint
from edgeseek.memory.planner import KvType
from edgeseek.package import Package, convert, open_package
from edgeseek.quantize.schemes import Scheme
from edgeseek.runtime.backend import BLOCK_TOKENS, Slice
from edgeseek.runtime.native import NativeBackend
from tests.make_models.gguf_file import write_gguf
from tests.make_models.tiny import TinyModel, tokenizer_json, write


def package_of(
    model: TinyModel,
    folder: Path,
    scheme: Scheme = "f32",
    changed: Mapping[str, npt.NDArray[np.float32]] | None = None,
) -> Package:
    """The package of `model` at `scheme`, made in `folder`, with the tensors of `changed` replaced."""
    return package_folder(write(model, folder / "checkpoint", changed), folder / "package", scheme)


def package_of_gguf(model: TinyModel, folder: Path, scheme: Scheme = "f32") -> Package:
    """The package of `model` at `scheme`, made in `folder` by way of a GGUF."""
    vocabulary = json.dumps(tokenizer_json()).encode()
    return converted(write_gguf(model, folder / "model.gguf"), folder / "package-of-gguf", vocabulary, scheme)


def package_folder(checkpoint_folder: Path, target: Path, scheme: Scheme) -> Package:
    """Convert a Hugging Face folder to a package at `scheme` and open it."""
    vocabulary = (checkpoint_folder / "tokenizer.json").read_bytes()
    return converted(checkpoint_folder, target, vocabulary, scheme)


def converted(source: Path, target: Path, vocabulary: bytes, scheme: Scheme | None) -> Package:
    """Convert a checkpoint to a package at `scheme` (None: what it is stored as) and open it."""
    with open_checkpoint(source) as checkpoint:
        convert(
            checkpoint,
            target,
            name=source.name,
            tokenizer_json=vocabulary,
            chat_template=None,
            generation_config={},
            scheme=scheme,
        )
    return open_package(target)


def backend_of(
    package: Package, tokens: int, threads: int = 2, isa: str | None = None, kv: KvType = "f16"
) -> NativeBackend:
    """A backend with KV for `tokens` positions, which are the planned context, and one spare block."""
    return NativeBackend(
        package,
        blocks=-(-tokens // BLOCK_TOKENS) + 1,
        threads=threads,
        isa=isa,
        kv=kv,
        context=tokens,
    )


def logits_of(
    backend: NativeBackend, ids: Sequence[int], chunks: Sequence[int] = (), taken: int = 0
) -> npt.NDArray[np.float32]:
    """Logits [len(ids), vocab] of one sequence, fed in `chunks` (default: all at once).

    Its blocks are the pool's last ones, in descending order, so that block ids differ from positions.
    """
    blocks = -(-len(ids) // BLOCK_TOKENS)
    table = [backend.num_blocks - 1 - taken - i for i in range(blocks)]
    rows = []
    past = 0
    for size in chunks or (len(ids),):
        piece = list(ids[past : past + size])
        rows.append(backend.forward([Slice(piece, past, table, logits="all")]))
        past += len(piece)
    return np.concatenate(rows)
