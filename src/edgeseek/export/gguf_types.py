"""Which GGUF type each matrix gets: one for all, or the mixtures that llama.cpp's users know by name.

Names are the package's (`layers.0.attn.v.weight`). Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, get_args

from edgeseek.architectures import ModelConfig
from edgeseek.checkpoints.tensor_types import BLOCKS
from edgeseek.errors import UsageError

GgufType = Literal["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
#: Called with a matrix's package name and (rows, columns).
Types = Callable[[str, tuple[int, ...]], GgufType]

GGUF_WRITTEN: tuple[GgufType, ...] = get_args(GgufType)
MIXTURES = (*GGUF_WRITTEN, "Q4_K_S", "Q4_K_M")

#: What llama.cpp takes where the columns do not fill blocks of 256, and of 32.
_NARROWER: Mapping[GgufType, GgufType] = MappingProxyType(
    {
        "Q4_K": "Q5_0",
        "Q5_K": "Q5_1",
        "Q6_K": "Q8_0",
        "Q4_0": "F16",
        "Q4_1": "F16",
        "Q5_0": "F16",
        "Q5_1": "F16",
        "Q8_0": "F16",
    }
)
#: ggml's `llama_ftype`, which only names the file in lists.
_FILE_TYPES: Mapping[str, int] = MappingProxyType(
    {
        "F32": 0,
        "F16": 1,
        "Q4_0": 2,
        "Q4_1": 3,
        "Q8_0": 7,
        "Q5_0": 8,
        "Q5_1": 9,
        "Q4_K": 15,
        "Q5_K": 17,
        "Q6_K": 18,
        "BF16": 32,
    }
)


def mixture(name: str, config: ModelConfig) -> Types:
    """The types that llama.cpp's `quantize` gives for the file type `name`, without an importance matrix.

    A quantized file's output matrix (the embedding where it is shared) is Q6_K, except in Q8_0. Raises
    UsageError naming the choices.
    """
    if name not in MIXTURES:
        raise UsageError(f"unknown GGUF type {name!r}; choose one of {', '.join(MIXTURES)}")
    base: GgufType = "Q4_K" if name in ("Q4_K_S", "Q4_K_M") else _as_type(name)
    output = "embed.weight" if config.tied_embeddings else "head.weight"

    def choose(tensor: str, _shape: tuple[int, ...]) -> GgufType:
        if base in ("F32", "F16", "BF16", "Q8_0"):
            return base
        if tensor == output:
            return "Q6_K"
        _, layer, part = [*tensor.split(".", 2), "", ""][:3]
        if name == "Q4_K_M" and part in ("attn.v.weight", "mlp.down.weight"):
            return "Q6_K" if _spared(int(layer), config.num_layers) else "Q4_K"
        if name == "Q4_K_S" and part == "attn.v.weight":
            return "Q5_K" if int(layer) < 4 else "Q4_K"
        if name == "Q4_K_S" and part == "mlp.down.weight":
            return "Q5_K" if int(layer) < config.num_layers // 8 else "Q4_K"
        return base

    return choose


def fitting(wanted: GgufType, columns: int) -> GgufType:
    """`wanted`, or what replaces it where `columns` do not fill its blocks."""
    while columns % BLOCKS[wanted][0]:
        wanted = _NARROWER[wanted]
    return wanted


def file_type(sizes: Mapping[str, int]) -> int:
    """`general.file_type` of a file that holds this many bytes of each type."""
    return _FILE_TYPES[max(sizes, key=lambda name: sizes[name])]


def _spared(layer: int, layers: int) -> bool:
    """The first and last eighth of the layers, and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _as_type(name: str) -> GgufType:
    for known in GGUF_WRITTEN:
        if known == name:
            return known
    raise UsageError(f"unknown GGUF type {name!r}; choose one of {', '.join(GGUF_WRITTEN)}")
