"""Finds a checkpoint's family by name and holds its tensors against the family's rules."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edgeseek.architectures.family import Family
from edgeseek.architectures.gguf_outline import GgufOutline, decoder_outline
from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.architectures.unused import refuse_unused
from edgeseek.checkpoints.base import Checkpoint, CheckpointKind, LazyTensor, TextAssets
from edgeseek.errors import CheckpointFormatError, MissingTensorError, UnsupportedCheckpointError


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """Every family of this folder, by file name."""
    package = __name__.rpartition(".")[0]
    found = []
    for module in sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)])):
        family = getattr(importlib.import_module(f"{package}.{module}"), "FAMILY", None)
        if isinstance(family, Family):
            found.append(family)
    return tuple(found)


def parse_config(checkpoint: Checkpoint) -> ModelConfig:
    """The hyper-parameters of `checkpoint`.

    Raises UnsupportedCheckpointError for an unknown architecture, RoPE scaling, activation or other key
    that changes the maths, CheckpointFormatError for absent or contradictory values.
    """
    return _family_of(checkpoint).parse_config(checkpoint)


def tensor_rules(config: ModelConfig, checkpoint: Checkpoint) -> tuple[TensorRule, ...]:
    """One rule for each tensor that the package will hold, in package order.

    Optional tensors that the checkpoint lacks are left out. Raises MissingTensorError for an absent
    tensor or another shape than the config's, UnsupportedCheckpointError for tensors no rule uses.
    """
    rules = []
    for rule in _named(config.architecture).rules(config, checkpoint):
        tensor = checkpoint.tensors.get(rule.source)
        if tensor is None:
            if rule.optional:
                continue
            raise MissingTensorError(
                f"{checkpoint.path} has no tensor {rule.source!r}, which {config.architecture} needs; "
                f"the checkpoint is incomplete, download it again"
            )
        if tuple(tensor.shape) != rule.source_shape:
            raise MissingTensorError(
                f"{checkpoint.path}: tensor {rule.source!r} has shape {list(tensor.shape)}, "
                f"and the config asks for {list(rule.source_shape)}"
            )
        rules.append(rule)
    refuse_unused(config, checkpoint, rules)
    return tuple(rules)


def expected_tensors(config: ModelConfig) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Package tensor name -> (logical shape, whether it may be absent), for a config from a package.

    Raises UnsupportedCheckpointError for an unknown architecture.
    """
    return _named(config.architecture).shapes(config)


def gguf_outline(config: ModelConfig) -> GgufOutline:
    """What a GGUF of the model says beside its weights; optional tensors are named too.

    Raises UnsupportedCheckpointError for an architecture or a scaling that cannot be written.
    """
    family = _named(config.architecture)
    if not family.writes_gguf:
        known = ", ".join(other.name for other in families() if other.writes_gguf)
        raise UnsupportedCheckpointError(
            f"{config.architecture} cannot be written as GGUF yet; known are {known}"
        )
    rules = [
        rule
        for rule in family.rules(config, _EmptyGguf())
        if family.gguf_biases or not rule.name.endswith(".bias")
    ]
    return decoder_outline(config, family.gguf_names[0], tuple(rules))


class _EmptyGguf:
    """Stands for a GGUF that is to be written, of which a family's rules look at the kind only."""

    kind: CheckpointKind = "gguf"
    path = Path("a new GGUF")
    raw_config: Mapping[str, Any] = MappingProxyType({})
    tensors: Mapping[str, LazyTensor] = MappingProxyType({})
    text_assets = TextAssets()

    def digest(self) -> str:
        return ""

    def close(self) -> None:
        pass

    def __enter__(self) -> _EmptyGguf:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def _family_of(checkpoint: Checkpoint) -> Family:
    if checkpoint.kind == "gguf":
        name = checkpoint.raw_config.get("general.architecture")
        if not isinstance(name, str):
            raise CheckpointFormatError(f"{checkpoint.path} has no 'general.architecture'; download it again")
        wanted, known = [name], {key: family for family in families() for key in family.gguf_names}
    else:
        listed = checkpoint.raw_config.get("architectures")
        wanted = [str(name) for name in listed] if isinstance(listed, list | tuple) else []
        if not wanted:
            raise CheckpointFormatError(
                f"config.json of {checkpoint.path} names no 'architectures'; it is not a model's config"
            )
        known = {key: family for family in families() for key in family.huggingface_names}
    for name in wanted:
        if name in known:
            return known[name]
    raise UnsupportedCheckpointError(
        f"{checkpoint.path}: unknown architecture {', '.join(wanted)}; known are {', '.join(sorted(known))}"
    )


def _named(architecture: str) -> Family:
    for family in families():
        if family.name == architecture:
            return family
    known: Iterable[str] = (family.name for family in families())
    raise UnsupportedCheckpointError(f"unknown architecture {architecture!r}; known are {', '.join(known)}")
