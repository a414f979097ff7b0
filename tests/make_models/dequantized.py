"""What a package's tensors stand for, under the names and in the order of rows of its Hugging Face folder.

The inverse of the import: `transformers` can then be asked what it computes with the rounded weights.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgeseek.architectures import LatentAttention
from edgeseek.package import Package
from edgeseek.quantize.packing import unpack

Floats = npt.NDArray[np.float32]

_STEMS = {"embed": "model.embed_tokens", "head": "lm_head", "final_norm": "model.norm"}
_PARTS = {
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "attn.q_a_norm": "self_attn.q_a_layernorm",
    "attn.kv_a_norm": "self_attn.kv_a_layernorm",
    "attn.kv_a": "self_attn.kv_a_proj_with_mqa",
    "mlp.router": "mlp.gate",
    **{f"attn.{part}": f"self_attn.{part}_proj" for part in ("q", "k", "v", "o", "q_a", "q_b")},
}


def dequantized(package: Package) -> dict[str, Floats]:
    """Every tensor of the package's source at float32."""
    found = {
        name: unpack(tensor.data, tensor.scheme, tensor.layout, tensor.shape)
        for name, tensor in package.tensors.items()
    }
    latent = package.config.latent
    if latent is not None:
        for layer in range(package.config.num_layers):
            _restore_latent(found, f"layers.{layer}.attn.", latent, package.config.num_heads)
    return {_hugging_face_name(name): value for name, value in found.items()}


def _restore_latent(tensors: dict[str, Floats], prefix: str, latent: LatentAttention, heads: int) -> None:
    """Join the halves of kv_b, and set rotated rows side by side again."""
    k_b, v_b = (tensors.pop(f"{prefix}{part}_b.weight") for part in "kv")
    keys = k_b.reshape(heads, latent.rank, latent.plain_dim).swapaxes(1, 2)
    values = v_b.reshape(heads, latent.value_dim, latent.rank)
    tensors[prefix + "kv_b_proj.weight"] = np.concatenate([keys, values], axis=1).reshape(-1, latent.rank)
    for part, count in (("q", heads), ("q_b", heads), ("kv_a", 1)):
        name = f"{prefix}{part}.weight"
        if name in tensors:
            rows = tensors[name].reshape(count, -1, tensors[name].shape[1]).copy()
            halves = rows[:, -latent.rotated_dim :].reshape(count, 2, latent.rotated_dim // 2, -1)
            rows[:, -latent.rotated_dim :] = halves.swapaxes(1, 2).reshape(count, latent.rotated_dim, -1)
            tensors[name] = rows.reshape(tensors[name].shape)


def _hugging_face_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("layers."):
        return f"{_STEMS[stem]}.{kind}"
    _, layer, part = stem.split(".", 2)
    if part in _PARTS:
        part = _PARTS[part]
    elif part.startswith("mlp."):
        part = part.replace("mlp.shared.", "mlp.shared_experts.") + "_proj"
    else:
        part = part.replace("attn.", "self_attn.")
    return f"model.layers.{layer}.{part}.{kind}"
