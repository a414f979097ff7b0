"""DeepSeek-MoE (DeepseekForCausalLM): Llama's attention, and experts from the second layer on.

DeepSeek-MoE-16B is of this family (arXiv 2401.06066). GGUF calls it "deepseek" and, as for Llama, stores
the two halves of each Q and K head interleaved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from edgeseek.architectures.decoder import Biases, decoder_rules, decoder_shapes, permuted
from edgeseek.architectures.decoder_config import gguf_config, huggingface_config
from edgeseek.architectures.family import Family
from edgeseek.architectures.fields import config_fields
from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.checkpoints.base import Checkpoint

_ATTENTION = frozenset({"attn.q", "attn.k", "attn.v", "attn.o"})


def parse_config(checkpoint: Checkpoint) -> ModelConfig:
    """ModelConfig of a DeepSeek-MoE checkpoint of either kind."""
    if checkpoint.kind == "gguf":
        return gguf_config(checkpoint, "deepseek", experts=True)
    return huggingface_config(checkpoint, config_fields(checkpoint), architecture="deepseek", experts=True)


def rules(config: ModelConfig, checkpoint: Checkpoint) -> Iterable[TensorRule]:
    """Rules for every tensor; a GGUF does not say whether biases exist, config.json does."""
    if checkpoint.kind == "gguf":
        for rule in decoder_rules(config, "gguf", Biases(optional=_ATTENTION)):
            yield replace(rule, unpermute_heads=permuted(rule, config))
        return
    biased = config_fields(checkpoint).flag("attention_bias", False)
    yield from decoder_rules(config, "huggingface", Biases(required=_ATTENTION if biased else frozenset()))


def shapes(config: ModelConfig) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Package tensors; a bias of attention may be absent."""
    return decoder_shapes(config, Biases(optional=_ATTENTION))


FAMILY = Family(
    name="deepseek",
    huggingface_names=("DeepseekForCausalLM",),
    gguf_names=("deepseek",),
    parse_config=parse_config,
    rules=rules,
    shapes=shapes,
)
