"""What a GGUF of a model says beside its weights: the inverse of `decoder.gguf_config` and `gguf_rope`.

Knows nothing of files; values are plain, arrays are float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeseek.architectures.rope import inverse_frequencies, yarn_mscale
from edgeseek.architectures.rope_gguf import FREQUENCY_FACTORS, LONG_FACTORS, SHORT_FACTORS
from edgeseek.architectures.spec import ModelConfig, Rope, TensorRule
from edgeseek.errors import UnsupportedCheckpointError


@dataclass(frozen=True)
class GgufOutline:
    """`architecture` and `keys` are metadata, the keys with the architecture's prefix.

    `rules` name every tensor, `source` being its name in the GGUF and `unpermute_heads` the heads whose
    rows it interleaves; `factors` are tensors that hold the frequencies' divisors.
    """

    architecture: str
    keys: Mapping[str, Any]
    rules: tuple[TensorRule, ...]
    factors: Mapping[str, npt.NDArray[np.float32]]


def decoder_outline(config: ModelConfig, architecture: str, rules: tuple[TensorRule, ...]) -> GgufOutline:
    """The outline of a Llama-shaped decoder.

    Raises UnsupportedCheckpointError for what GGUF has no words for: windows that differ by layer,
    "dynamic" scaling, YaRN with a ramp between pairs.
    """
    windows = set(config.sliding_windows)
    if len(windows) > 1:
        raise UnsupportedCheckpointError(
            f"attention spans of {sorted(windows)} in one model cannot be written as GGUF, which has one"
        )
    keys: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "context_length": config.max_context,
        "embedding_length": config.hidden_size,
        "block_count": config.num_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.layer_norm_rms_epsilon": config.rms_eps,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.dimension_count": config.rotary_dim,
        "rope.freq_base": config.rope.theta,
    }
    if windows - {0}:
        keys["attention.sliding_window"] = config.sliding_windows[0]
    scaling, factors = _rope(config.rope, config.rotary_dim)
    keys.update({f"rope.scaling.{name}": value for name, value in scaling.items()})
    prefixed = {f"{architecture}.{name}": value for name, value in keys.items()}
    return GgufOutline(architecture, prefixed, rules, factors)


def _rope(rope: Rope, dims: int) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.float32]]]:
    if rope.kind == "default":
        return {}, {}
    if rope.kind == "linear":
        return {"type": "linear", "factor": rope.factor}, {}
    if rope.kind == "llama3":
        # Llama 3's scaling is stored as what it divides each frequency by.
        plain = inverse_frequencies(Rope(theta=rope.theta), dims, 0)
        return {}, {FREQUENCY_FACTORS: plain / inverse_frequencies(rope, dims, 0)}
    if rope.kind == "factors":
        return {}, {FREQUENCY_FACTORS: np.array(rope.factors, np.float32)}
    if rope.kind == "yarn" and rope.truncate and not rope.mscale_all_dim:
        keys = {
            "type": "yarn",
            "factor": rope.factor,
            "original_context_length": rope.original_context,
            "yarn_beta_fast": rope.beta_fast,
            "yarn_beta_slow": rope.beta_slow,
        }
        correction = rope.attention_factor / yarn_mscale(rope.factor)
        if abs(correction - 1) > 1e-6:
            # llama.cpp multiplies what it infers from the factor.
            keys["attn_factor"] = correction
        return keys, {}
    if rope.kind == "longrope":
        keys = {
            "type": "longrope",
            "original_context_length": rope.original_context,
            "attn_factor": rope.attention_factor,
        }
        listed = {SHORT_FACTORS: rope.factors, LONG_FACTORS: rope.long_factors}
        return keys, {name: np.array(values, np.float32) for name, values in listed.items()}
    raise UnsupportedCheckpointError(f"RoPE scaling {rope.kind!r} of this kind cannot be written as GGUF")
