"""DeepSeek-V3 (DeepseekV3ForCausalLM): V2's latent attention, other routing.

Layers that predict further tokens (multi-token prediction) are not read; a checkpoint that holds their
tensors is refused by name. GGUF calls this family "deepseek2" as well, see `deepseek_v2.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from edgeseek.architectures.decoder_config import huggingface_config
from edgeseek.architectures.deepseek_v2 import latent_decoder_rules, shapes
from edgeseek.architectures.family import Family
from edgeseek.architectures.fields import Fields, config_fields
from edgeseek.architectures.latent import huggingface_latent
from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.checkpoints.base import Checkpoint

#: What the family's name says where config.json does not: transformers writes neither of these keys.
_IMPLIED: Mapping[str, str] = MappingProxyType({"topk_method": "noaux_tc", "scoring_func": "sigmoid"})


def parse_config(checkpoint: Checkpoint) -> ModelConfig:
    """ModelConfig of a DeepSeek-V3 folder."""
    fields = config_fields(checkpoint)
    stated = {key: value for key, value in fields.values.items() if value is not None}
    return huggingface_config(
        checkpoint,
        Fields({**_IMPLIED, **stated}, fields.origin),
        architecture="deepseek_v3",
        experts=True,
        latent=huggingface_latent,
    )


def rules(config: ModelConfig, checkpoint: Checkpoint) -> Iterable[TensorRule]:
    """Rules for every tensor; `rope_interleave` false means that rotated rows come as halves already."""
    interleaved = config_fields(checkpoint).flag("rope_interleave", True)
    return latent_decoder_rules(config, checkpoint, interleaved=interleaved)


FAMILY = Family(
    name="deepseek_v3",
    huggingface_names=("DeepseekV3ForCausalLM",),
    gguf_names=(),
    parse_config=parse_config,
    rules=rules,
    shapes=shapes,
)
