"""The tiny models as GGUF files, written by the public `gguf` package under llama.cpp's conventions.

Nothing of edgeseek takes part: names, the order of Q and K rows and the keys of RoPE scalings are written
out here as llama.cpp's converter has them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.make_models.tiny import VOCAB_SIZE, TinyModel, tensors

Floats = npt.NDArray[np.float32]
_TOP = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """GGUF's name of a tensor that has Hugging Face's."""
    stem, _, kind = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_PARTS[part]}.{kind}"


def interleaved(rows: Floats, heads: int) -> Floats:
    """Rows of each head in the order of GGUF's llama: (0, n/2, 1, n/2 + 1, ...) of its n."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def llama3_factors(scaling: dict[str, Any], theta: float, dims: int) -> Floats:
    """What llama.cpp's converter stores as rope_freqs: the divisor of each frequency."""
    original = scaling["original_max_position_embeddings"]
    low, high = original / scaling["low_freq_factor"], original / scaling["high_freq_factor"]
    factors = []
    for i in range(dims // 2):
        wavelength = 2 * math.pi * theta ** (2 * i / dims)
        if wavelength < high:
            factors.append(1.0)
        elif wavelength > low:
            factors.append(scaling["factor"])
        else:
            smooth = (original / wavelength - scaling["low_freq_factor"]) / (
                scaling["high_freq_factor"] - scaling["low_freq_factor"]
            )
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def has_gguf_form(model: TinyModel) -> bool:
    """Whether `write_gguf` can say what `model` is.

    GGUF has neither "dynamic" scaling nor windows of some layers only; `latent_gguf.py` writes latent
    attention.
    """
    grouped = model.architecture in ("llama", "qwen2", "qwen3")
    scaling = _scaling(model.config())
    return grouped and scaling.get("rope_type") != "dynamic" and "use_sliding_window" not in model.extra


def write_gguf(model: TinyModel, path: Path) -> Path:
    """Make the GGUF of `model`, all F32, at `path` and return it."""
    config = model.config()
    writer = gguf.GGUFWriter(path, model.architecture)
    writer.add_block_count(model.layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(model.hidden_size)
    writer.add_feed_forward_length(model.intermediate_size)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(VOCAB_SIZE)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(model.head_dim)
    scaling = _scaling(config)
    theta = scaling.get("rope_theta", config["rope_theta"])
    writer.add_rope_freq_base(theta)
    _add_scaling(writer, scaling, theta, model.head_dim, config["max_position_embeddings"])
    for name, value in tensors(model).items():
        if model.architecture == "llama" and ".q_proj." in name:
            value = interleaved(value, model.heads)
        elif model.architecture == "llama" and ".k_proj." in name:
            value = interleaved(value, model.kv_heads)
        writer.add_tensor(gguf_name(name), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _scaling(config: dict[str, Any]) -> dict[str, Any]:
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return {"rope_type": scaling.get("type"), **scaling}


def _add_scaling(
    writer: gguf.GGUFWriter, scaling: dict[str, Any], theta: float, dims: int, context: int
) -> None:
    kind = scaling["rope_type"]
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(scaling, theta, dims))
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        if "beta_fast" in scaling:
            writer.add_float32("llama.rope.scaling.yarn_beta_fast", scaling["beta_fast"])
        if "attention_factor" in scaling:
            # ggml multiplies its own 0.1 ln(factor) + 1 with it.
            own = 0.1 * math.log(scaling["factor"]) + 1
            writer.add_rope_scaling_attn_factors(scaling["attention_factor"] / own)
    elif kind == "longrope":
        original = scaling["original_max_position_embeddings"]
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(context / original) / math.log(original)))
        for length in ("short", "long"):
            values = np.array(scaling[f"{length}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", values)
    elif kind is not None:
        raise ValueError(f"GGUF has no {kind!r} scaling")
