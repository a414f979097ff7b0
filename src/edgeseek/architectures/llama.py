"""Llama (LlamaForCausalLM) and Mistral (MistralForCausalLM), which is Llama with a sliding window.

GGUF calls both "llama" and stores the two halves of each Q and K head interleaved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from edgeseek.architectures.decoder import LINEARS, Biases, decoder_rules, decoder_shapes, permuted
from edgeseek.architectures.decoder_config import gguf_config, huggingface_config
from edgeseek.architectures.family import Family
from edgeseek.architectures.fields import config_fields
from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.architectures.windows import mistral_windows
from edgeseek.checkpoints.base import Checkpoint

_ANY_BIAS = Biases(optional=frozenset(LINEARS))


def parse_config(checkpoint: Checkpoint) -> ModelConfig:
    """ModelConfig of a Llama or Mistral checkpoint of either kind."""
    if checkpoint.kind == "gguf":
        return gguf_config(checkpoint, "llama")
    fields = config_fields(checkpoint)
    return huggingface_config(
        checkpoint,
        fields,
        architecture="llama",
        sliding_windows=mistral_windows(fields)
        if "MistralForCausalLM" in (fields.get("architectures") or ())
        else (),
    )


def rules(config: ModelConfig, checkpoint: Checkpoint) -> Iterable[TensorRule]:
    """Rules for every tensor; a GGUF does not say which biases exist, config.json does."""
    if checkpoint.kind == "gguf":
        for rule in decoder_rules(config, "gguf", _ANY_BIAS):
            yield replace(rule, unpermute_heads=permuted(rule, config))
        return
    fields = config_fields(checkpoint)
    required: set[str] = set()
    for key, part in (("attention_bias", "attn."), ("mlp_bias", "mlp.")):
        if fields.flag(key, False):
            required.update(linear for linear in LINEARS if linear.startswith(part))
    yield from decoder_rules(config, "huggingface", Biases(required=frozenset(required)))


def shapes(config: ModelConfig) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Package tensors; every bias may be absent."""
    return decoder_shapes(config, _ANY_BIAS)


FAMILY = Family(
    name="llama",
    huggingface_names=("LlamaForCausalLM", "MistralForCausalLM"),
    gguf_names=("llama",),
    parse_config=parse_config,
    rules=rules,
    shapes=shapes,
    writes_gguf=True,
)
