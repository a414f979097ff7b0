"""Which GGUF metadata bears on the computation, so that nothing that does is passed over in silence."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from edgeseek.architectures.fields import Fields
from edgeseek.architectures.rope_gguf import LOG_MULTIPLIER, ROPE_KEYS
from edgeseek.errors import UnsupportedCheckpointError

#: GGUF metadata that scales or routes values: refused unless it holds the neutral value.
_NEUTRAL_GGUF: Mapping[str, float] = MappingProxyType(
    {
        "expert_count": 0,
        "expert_used_count": 0,
        "expert_shared_count": 0,
        "logit_scale": 1,
        "embedding_scale": 1,
        "residual_scale": 1,
        "attention.scale": 0,
        "attention.clamp_kqv": 0,
        "attention.max_alibi_bias": 0,
        "attn_logit_softcapping": 0,
        "final_logit_softcapping": 0,
    }
)
#: GGUF metadata that is read elsewhere or changes nothing here.
_HARMLESS_GGUF = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.layer_norm_epsilon",
        "attention.sliding_window",
        "attention.causal",
        *ROPE_KEYS,
    }
)
#: Any other key of these kinds is taken to change the computation.
_MATHS_STARTS = ("attention.", "rope.", "expert")
_MATHS_ENDS = ("scale", "softcapping")
#: Metadata of latent attention, read where a family has it.
LATENT_GGUF_KEYS = frozenset(
    {
        "attention.q_lora_rank",
        "attention.kv_lora_rank",
        "attention.key_length_mla",
        "attention.value_length_mla",
        LOG_MULTIPLIER,
    }
)


def refuse_unknown_gguf_maths(fields: Fields, known: frozenset[str] = frozenset()) -> None:
    """Raise UnsupportedCheckpointError for metadata that would change the result and is not known.

    `known` are keys, without the prefix, that the family reads itself.
    """
    if not fields.flag("attention.causal", True):
        raise UnsupportedCheckpointError(
            f"{fields.origin}: the model is not causal; only decoders are supported"
        )
    for key in sorted(fields.values):
        if not key.startswith(fields.prefix):
            continue
        name, value = key[len(fields.prefix) :], fields.values[key]
        if name in _HARMLESS_GGUF or name in known:
            continue
        neutral = _NEUTRAL_GGUF.get(name)
        if neutral is not None:
            unknown = value not in (0, neutral)
        else:
            unknown = name.startswith(_MATHS_STARTS) or name.endswith(_MATHS_ENDS)
        if unknown:
            raise UnsupportedCheckpointError(
                f"{fields.origin}: {key!r} is {value!r}, which changes the computation in an unknown way"
            )
