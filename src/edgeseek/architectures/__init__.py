"""Families of models, one file each: config parsing and the map from checkpoint to package tensors.

A file of this folder that defines `FAMILY` is found by the name in config.json or in GGUF metadata;
nothing else in the program knows families.
"""

from __future__ import annotations

from edgeseek.architectures.gguf_outline import GgufOutline
from edgeseek.architectures.registry import expected_tensors, gguf_outline, parse_config, tensor_rules
from edgeseek.architectures.spec import LatentAttention, ModelConfig, MoE, Rope, TensorRule
from edgeseek.architectures.unused import ignored_tensors

__all__ = [
    "GgufOutline",
    "LatentAttention",
    "MoE",
    "ModelConfig",
    "Rope",
    "TensorRule",
    "expected_tensors",
    "gguf_outline",
    "ignored_tensors",
    "parse_config",
    "tensor_rules",
]
