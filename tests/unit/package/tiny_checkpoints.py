"""Small checkpoints with contents, in memory, and the values they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeseek.checkpoints.base import Checkpoint
from edgeseek.package import ConversionReport, Package, convert
from edgeseek.package.files import Files
from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS
from edgeseek.quantize.packing import unpack
from edgeseek.quantize.schemes import Scheme
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, FakeTensor
from tests.unit.architectures.tiny_models import LLAMA, gguf_shapes, huggingface_shapes
from tests.unit.quantize.gguf_rows import random_rows, reference_values

Floats = npt.NDArray[np.float32]


def float_tensor(name: str, dtype: str, shape: tuple[int, ...], seed: int) -> FakeTensor:
    """Normally distributed values, stored as F32, F16 or BF16."""
    numbers = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    rows = numbers.reshape(-1, shape[-1])
    if dtype == "F16":
        data = rows.astype(np.float16).view(np.uint8)
    elif dtype == "BF16":
        data = (rows.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:
        data = rows.view(np.uint8)
    return FakeTensor(name, dtype, shape, data)


def float_values(tensor: FakeTensor) -> Floats:
    """What a float tensor holds."""
    assert tensor.data is not None
    if tensor.dtype == "F16":
        flat = tensor.data.view(np.float16).astype(np.float32)
    elif tensor.dtype == "BF16":
        flat = (tensor.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        flat = tensor.data.view(np.float32)
    return flat.reshape(tensor.shape)


def gguf_tensor(name: str, dtype: str, shape: tuple[int, int], seed: int) -> FakeTensor:
    """Random blocks of a GGUF type."""
    return FakeTensor(name, dtype, shape, random_rows(dtype, *shape, seed=seed))


def folder(dtype: str = "BF16", *, tied: bool = False) -> FakeCheckpoint:
    """The tiny Llama as a Hugging Face folder."""
    tensors = {
        name: float_tensor(name, dtype, shape, seed)
        for seed, (name, shape) in enumerate(huggingface_shapes(tied=tied).items())
    }
    return FakeCheckpoint("huggingface", {**LLAMA, "tie_word_embeddings": tied}, tensors)


def gguf_model(
    types: Mapping[str, str], config: Mapping[str, Any], *, default: str, tied: bool = False
) -> FakeCheckpoint:
    """The tiny Llama as a GGUF: matrices of type `default`, or as `types` says by the name's middle part."""
    tensors = {}
    for seed, (name, shape) in enumerate(gguf_shapes(tied=tied).items()):
        if len(shape) == 1:
            tensors[name] = float_tensor(name, "F32", shape, seed)
            continue
        dtype = types.get(name.split(".")[-2], default)
        make = gguf_tensor if dtype in GGUF_BLOCKS else float_tensor
        tensors[name] = make(name, dtype, (shape[0], shape[1]), seed)
    return FakeCheckpoint("gguf", config, tensors)


def gguf_values(tensor: FakeTensor) -> Floats:
    """What a GGUF tensor holds, by the `gguf` package."""
    assert tensor.data is not None
    if tensor.dtype in GGUF_BLOCKS:
        return reference_values(tensor.dtype, tensor.data)
    return float_values(tensor)


def package_values(package: Package, name: str) -> Floats:
    """What a package tensor holds."""
    tensor = package.tensors[name]
    return unpack(tensor.data, tensor.scheme, tensor.layout, tensor.shape)


def make_package(
    checkpoint: Checkpoint, target: Path, *, scheme: Scheme | None = None, files: Files | None = None
) -> ConversionReport:
    """Convert with placeholder text files."""
    return convert(
        checkpoint,
        target,
        name="tiny",
        tokenizer_json=b'{"model": "placeholder"}',
        chat_template="{{ messages }}",
        generation_config={"eos_token_id": 2},
        scheme=scheme,
        files=files,
    )
