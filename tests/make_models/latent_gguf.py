"""A tiny model with latent attention as GGUF metadata and tensors, in both of the ways they are stored.

The names and shapes are those that llama.cpp's convert_hf_to_gguf.py gives DeepSeek-V2: with `attn_kv_b`
(converters before April 2025), or with its halves as three-dimensional tensors, the keys' transposed.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.make_models.tiny import TinyModel, tensors

Floats = npt.NDArray[np.float32]

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "self_attn.o_proj": "attn_output",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    **{f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_metadata(model: TinyModel, *, split: bool) -> dict[str, Any]:
    """The metadata of `model`, under the architecture deepseek2."""
    latent, config = model.latent, model.config()
    assert latent is not None
    keys = latent.plain + latent.rotated
    values: dict[str, Any] = {
        "block_count": model.layers,
        "context_length": config["max_position_embeddings"],
        "embedding_length": model.hidden_size,
        "feed_forward_length": model.intermediate_size,
        "vocab_size": config["vocab_size"],
        "leading_dense_block_count": model.layers,
        "attention.head_count": model.heads,
        "attention.head_count_kv": 1 if split else model.heads,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "attention.kv_lora_rank": latent.rank,
        "attention.key_length": latent.rank + latent.rotated if split else keys,
        "attention.value_length": latent.rank if split else latent.value,
        "rope.dimension_count": latent.rotated,
        "rope.freq_base": config["rope_theta"],
    }
    if split:
        values |= {"attention.key_length_mla": keys, "attention.value_length_mla": latent.value}
    if latent.query_rank:
        values["attention.q_lora_rank"] = latent.query_rank
    if model.experts is not None:
        values |= _expert_metadata(config)
    scaling = config.get("rope_scaling")
    if scaling is not None:
        values |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": float(scaling["factor"]),
            "rope.scaling.original_context_length": scaling["original_max_position_embeddings"],
            "rope.scaling.yarn_log_multiplier": float(np.float32(0.1 * scaling["mscale_all_dim"])),
        }
    return {
        "general.architecture": "deepseek2",
        **{f"deepseek2.{key}": value for key, value in values.items()},
    }


def _expert_metadata(config: dict[str, Any]) -> dict[str, Any]:
    values = {
        "leading_dense_block_count": config["first_k_dense_replace"],
        "expert_count": config["n_routed_experts"],
        "expert_used_count": config["num_experts_per_tok"],
        "expert_shared_count": config["n_shared_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_weights_scale": config["routed_scaling_factor"],
        "expert_weights_norm": config["norm_topk_prob"],
        # llama.cpp's LLAMA_EXPERT_GATING_FUNC_TYPE: softmax, sigmoid.
        "expert_gating_func": 2 if config["model_type"] == "deepseek_v3" else 1,
    }
    if "n_group" in config:
        values |= {"expert_group_count": config["n_group"], "expert_group_used_count": config["topk_group"]}
    return values


def gguf_tensors(model: TinyModel, *, split: bool) -> dict[str, Floats]:
    """The tensors of `model` under GGUF's names."""
    latent = model.latent
    assert latent is not None
    out: dict[str, Floats] = {}
    stacks: dict[str, list[Floats]] = {}
    for name, value in tensors(model).items():
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)
        expert = re.fullmatch(r"(blk\.\d+)\.mlp\.experts\.\d+\.(gate|up|down)_proj\.weight", name)
        if expert is not None:
            stacks.setdefault(f"{expert[1]}.ffn_{expert[2]}_exps.weight", []).append(value)
        elif split and "attn_kv_b" in name:
            heads = value.reshape(model.heads, latent.plain + latent.value, latent.rank)
            keys, values = heads[:, : latent.plain], heads[:, latent.plain :]
            out[name.replace("kv_b", "k_b")] = np.ascontiguousarray(keys.swapaxes(1, 2))
            out[name.replace("kv_b", "v_b")] = np.ascontiguousarray(values)
        else:
            out[name] = value
    return {**out, **{name: np.stack(parts) for name, parts in stacks.items()}}
