"""What a family's file provides. Each file of this folder that defines `FAMILY` is found by its names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.checkpoints.base import Checkpoint


@dataclass(frozen=True)
class Family:
    """One architecture: the names it goes by, and the functions that read it.

    `name` is `ModelConfig.architecture`. `huggingface_names` are entries of config.json's
    `architectures`, `gguf_names` values of `general.architecture`. `shapes` maps each package tensor to
    its logical shape and whether it may be absent. `writes_gguf` says that a GGUF of the first of
    `gguf_names` can be written with the keys of `gguf_outline.decoder_outline`.
    """

    name: str
    huggingface_names: tuple[str, ...]
    gguf_names: tuple[str, ...]
    parse_config: Callable[[Checkpoint], ModelConfig]
    rules: Callable[[ModelConfig, Checkpoint], Iterable[TensorRule]]
    shapes: Callable[[ModelConfig], Mapping[str, tuple[tuple[int, ...], bool]]]
    writes_gguf: bool = False
    #: Whether llama.cpp reads biases in a GGUF of this family.
    gguf_biases: bool = True
