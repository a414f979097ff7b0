"""Qwen3 (Qwen3ForCausalLM): an RMSNorm over each query and key head before its rotation.

DeepSeek-R1-0528-Qwen3 is of this family. GGUF calls it "qwen3" and stores Q and K rows in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgeseek.architectures.decoder import Biases, decoder_rules, decoder_shapes
from edgeseek.architectures.decoder_config import gguf_config, huggingface_config
from edgeseek.architectures.family import Family
from edgeseek.architectures.fields import config_fields
from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.architectures.windows import qwen_windows
from edgeseek.checkpoints.base import Checkpoint

_ATTENTION = frozenset({"attn.q", "attn.k", "attn.v", "attn.o"})
_ANY_BIAS = Biases(optional=_ATTENTION)
#: Dimensions of a head where config.json does not say: transformers' Qwen3Config.
_HEAD_DIM = 128


def parse_config(checkpoint: Checkpoint) -> ModelConfig:
    """ModelConfig of a Qwen3 checkpoint of either kind."""
    if checkpoint.kind == "gguf":
        return gguf_config(checkpoint, "qwen3")
    fields = config_fields(checkpoint)
    return huggingface_config(
        checkpoint,
        fields,
        architecture="qwen3",
        sliding_windows=qwen_windows(fields),
        head_dim=_HEAD_DIM,
    )


def rules(config: ModelConfig, checkpoint: Checkpoint) -> Iterable[TensorRule]:
    """Rules for every tensor; a GGUF does not say which biases exist, config.json does."""
    if checkpoint.kind == "gguf":
        return decoder_rules(config, "gguf", _ANY_BIAS, head_norms=True)
    biased = config_fields(checkpoint).flag("attention_bias", False)
    biases = Biases(required=_ATTENTION if biased else frozenset())
    return decoder_rules(config, "huggingface", biases, head_norms=True)


def shapes(config: ModelConfig) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Package tensors; the biases of the attention may be absent."""
    return decoder_shapes(config, _ANY_BIAS, head_norms=True)


FAMILY = Family(
    name="qwen3",
    huggingface_names=("Qwen3ForCausalLM",),
    gguf_names=("qwen3",),
    parse_config=parse_config,
    rules=rules,
    shapes=shapes,
    writes_gguf=True,
    gguf_biases=False,
)
