"""Tiny configs and the tensor shapes that go with them, written out independently of the code under test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeseek.checkpoints.base import TextAssets
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, FakeTensor, shapes_only

LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
QWEN2: Mapping[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
QWEN3: Mapping[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 16,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
}
LLAMA_GGUF: Mapping[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": 16,
    "llama.vocab_size": 97,
}
QWEN2_GGUF: Mapping[str, Any] = {
    **{key.replace("llama.", "qwen2."): value for key, value in LLAMA_GGUF.items()},
    "general.architecture": "qwen2",
    "qwen2.rope.freq_base": 1000000.0,
}
QWEN3_GGUF: Mapping[str, Any] = {
    **{key.replace("llama.", "qwen3."): value for key, value in LLAMA_GGUF.items()},
    "general.architecture": "qwen3",
    "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
    "qwen3.attention.key_length": 16,
    "qwen3.attention.value_length": 16,
    "qwen3.rope.freq_base": 1000000.0,
}

_LAYER = {
    "self_attn.q_proj": (64, 64),
    "self_attn.k_proj": (32, 64),
    "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (96, 64),
    "mlp.up_proj": (96, 64),
    "mlp.down_proj": (64, 96),
}
_GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def huggingface_shapes(
    *, tied: bool = False, biases: tuple[str, ...] = (), norms: bool = False
) -> dict[str, tuple[int, ...]]:
    """Tensors of the tiny config in Hugging Face's names.

    `biases` lists linears ("self_attn.q_proj"); `norms` adds those of query and key heads.
    """
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (97, 64), "model.norm.weight": (64,)}
    for layer in ("model.layers.0.", "model.layers.1."):
        shapes[layer + "input_layernorm.weight"] = (64,)
        shapes[layer + "post_attention_layernorm.weight"] = (64,)
        for part in ("q", "k") if norms else ():
            shapes[f"{layer}self_attn.{part}_norm.weight"] = (16,)
        for name, shape in _LAYER.items():
            shapes[f"{layer}{name}.weight"] = shape
            if name in biases:
                shapes[f"{layer}{name}.bias"] = shape[:1]
    if not tied:
        shapes["lm_head.weight"] = (97, 64)
    return shapes


def gguf_shapes(
    *, tied: bool = False, biases: tuple[str, ...] = (), norms: bool = False
) -> dict[str, tuple[int, ...]]:
    """The same in GGUF's names."""
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    for layer in (0, 1):
        names[f"model.layers.{layer}.input_layernorm.weight"] = f"blk.{layer}.attn_norm.weight"
        names[f"model.layers.{layer}.post_attention_layernorm.weight"] = f"blk.{layer}.ffn_norm.weight"
        for part in ("q", "k"):
            names[f"model.layers.{layer}.self_attn.{part}_norm.weight"] = (
                f"blk.{layer}.attn_{part}_norm.weight"
            )
        for name, short in _GGUF_NAMES.items():
            for end in ("weight", "bias"):
                names[f"model.layers.{layer}.{name}.{end}"] = f"blk.{layer}.{short}.{end}"
    found = huggingface_shapes(tied=tied, biases=biases, norms=norms)
    return {names[name]: shape for name, shape in found.items()}


QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def huggingface(
    config: Mapping[str, Any],
    *,
    tied: bool = False,
    biases: tuple[str, ...] = (),
    norms: bool = False,
    generation: Mapping[str, Any] | None = None,
    **changes: Any,
) -> FakeCheckpoint:
    """A folder of shapes; a keyword set to ... (Ellipsis) removes the key."""
    values = {key: value for key, value in {**config, **changes}.items() if value is not ...}
    tensors: dict[str, FakeTensor] = shapes_only(huggingface_shapes(tied=tied, biases=biases, norms=norms))
    return FakeCheckpoint("huggingface", values, tensors, TextAssets(generation_config=generation or {}))


def gguf_file(
    config: Mapping[str, Any],
    *,
    tied: bool = False,
    biases: tuple[str, ...] = (),
    norms: bool = False,
    text: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> FakeCheckpoint:
    """A GGUF of shapes; a change to ... (Ellipsis) removes the key."""
    values = {key: value for key, value in {**config, **(changes or {})}.items() if value is not ...}
    tensors = shapes_only(gguf_shapes(tied=tied, biases=biases, norms=norms))
    return FakeCheckpoint("gguf", values, tensors, TextAssets(gguf_metadata=text or {}))
