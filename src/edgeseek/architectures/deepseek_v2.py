"""DeepSeek-V2 (DeepseekV2ForCausalLM): latent attention, with plain or low-rank queries.

V2-Lite, Coder-V2-Lite and their like. GGUF calls it "deepseek2", and DeepSeek-V3 too. Both kinds of
checkpoints store rotated dimensions as pairs of neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from edgeseek.architectures.decoder import Biases, decoder_rules, decoder_shapes
from edgeseek.architectures.decoder_config import gguf_config, huggingface_config
from edgeseek.architectures.family import Family
from edgeseek.architectures.fields import config_fields
from edgeseek.architectures.latent import BIASED, gguf_latent, huggingface_latent, latent_rules
from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.checkpoints.base import Checkpoint

ANY_BIAS = Biases(optional=BIASED)


def parse_config(checkpoint: Checkpoint) -> ModelConfig:
    """ModelConfig of a DeepSeek-V2 checkpoint of either kind."""
    if checkpoint.kind == "gguf":
        return gguf_config(checkpoint, "deepseek2", family="deepseek_v2", experts=True, latent=gguf_latent)
    return huggingface_config(
        checkpoint,
        config_fields(checkpoint),
        architecture="deepseek_v2",
        experts=True,
        latent=huggingface_latent,
    )


def rules(config: ModelConfig, checkpoint: Checkpoint) -> Iterable[TensorRule]:
    """Rules for every tensor; config.json says whether attention has biases, GGUF has none."""
    return latent_decoder_rules(config, checkpoint, interleaved=True)


def latent_decoder_rules(
    config: ModelConfig, checkpoint: Checkpoint, *, interleaved: bool
) -> Iterable[TensorRule]:
    """The rules of a decoder with latent attention, see `latent_rules`."""
    biases = Biases()
    if checkpoint.kind == "huggingface" and config_fields(checkpoint).flag("attention_bias", False):
        biases = Biases(
            required=BIASED if config.latent and config.latent.query_rank else BIASED - {"attn.q_a"}
        )
    attention = partial(latent_rules, config, checkpoint=checkpoint, biases=biases, interleaved=interleaved)
    return decoder_rules(config, checkpoint.kind, biases, attention=attention)


def shapes(config: ModelConfig) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Package tensors; every bias may be absent."""
    attention = partial(latent_rules, config, checkpoint=None, biases=ANY_BIAS)
    return decoder_shapes(config, ANY_BIAS, attention=attention)


FAMILY = Family(
    name="deepseek_v2",
    huggingface_names=("DeepseekV2ForCausalLM",),
    gguf_names=("deepseek2",),
    parse_config=parse_config,
    rules=rules,
    shapes=shapes,
)
