"""The tiny models with experts as GGUF files, as llama.cpp's converter writes them.

Nothing of edgeseek takes part: the stacks of experts, the order of Q and K rows and the keys are written out
here, by means of the public `gguf` package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from tests.make_models.gguf_file import Floats, gguf_name, interleaved
from tests.make_models.tiny import VOCAB_SIZE
from tests.make_models.tiny_experts import TinyExperts, tensors

_MLP_PARTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
_STACKS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}


def stored_tensors(model: TinyExperts) -> dict[str, Floats]:
    """The tensors of the file, by GGUF's names; a stack is [experts, rows, columns]."""
    out: dict[str, Floats] = {}
    stacks: dict[str, list[Floats]] = {}
    for name, value in tensors(model).items():
        if ".self_attn.q_proj." in name:
            value = interleaved(value, model.heads)
        elif ".self_attn.k_proj." in name:
            value = interleaved(value, model.kv_heads)
        stem, _, kind = name.rpartition(".")
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        if kind == "e_score_correction_bias":
            out[f"blk.{layer}.exp_probs_b.bias"] = value
        elif ".mlp.experts." in name:
            stacks.setdefault(f"blk.{layer}.{_STACKS[part.rpartition('.')[2]]}.weight", []).append(value)
        elif part in _MLP_PARTS:
            out[f"blk.{layer}.{_MLP_PARTS[part]}.weight"] = value
        else:
            out[gguf_name(name)] = value
    return {**out, **{name: np.stack(values) for name, values in stacks.items()}}


def write_gguf(
    model: TinyExperts, path: Path, types: Mapping[str, gguf.GGMLQuantizationType] | None = None
) -> Path:
    """Make the GGUF of `model` at `path` and return it; all F32, or as `types` says by name."""
    config = model.config()
    writer = gguf.GGUFWriter(path, "deepseek")
    writer.add_block_count(model.layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(model.hidden_size)
    writer.add_feed_forward_length(model.intermediate_size)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(model.head_dim)
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(VOCAB_SIZE)
    writer.add_leading_dense_block_count(model.first_dense)
    writer.add_expert_count(model.experts)
    writer.add_expert_used_count(model.experts_per_token)
    writer.add_expert_shared_count(model.shared)
    writer.add_expert_feed_forward_length(model.moe_intermediate_size)
    writer.add_expert_weights_scale(config.get("routed_scaling_factor", 1.0))
    if config["norm_topk_prob"]:
        writer.add_expert_weights_norm(True)
    if "n_group" in config:
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    if config["scoring_func"] == "sigmoid":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    # llama.cpp reads a file without a vocabulary where it says so.
    writer.add_tokenizer_model("no_vocab")
    for name, value in stored_tensors(model).items():
        wanted = (types or {}).get(name.split(".")[-2])
        if wanted is None:
            writer.add_tensor(name, value)
        else:
            writer.add_tensor(name, gguf.quants.quantize(value, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
