"""Tensors of Llama-shaped decoders: their names in the world's two styles and in packages, as rules.

A layer is RMSNorm, attention, RMSNorm, SwiGLU or experts. Families say which biases and norms exist; their
config is read by `decoder_config.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from edgeseek.architectures.experts import expert_rules
from edgeseek.architectures.spec import ModelConfig, Role, TensorRule
from edgeseek.checkpoints.base import CheckpointKind

#: Package name of a layer's linear -> (Hugging Face name, GGUF name).
LINEARS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "attn.q": ("self_attn.q_proj", "attn_q"),
        "attn.k": ("self_attn.k_proj", "attn_k"),
        "attn.v": ("self_attn.v_proj", "attn_v"),
        "attn.o": ("self_attn.o_proj", "attn_output"),
        "mlp.gate": ("mlp.gate_proj", "ffn_gate"),
        "mlp.up": ("mlp.up_proj", "ffn_up"),
        "mlp.down": ("mlp.down_proj", "ffn_down"),
    }
)
_NORMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "attn_norm": ("input_layernorm", "attn_norm"),
        "mlp_norm": ("post_attention_layernorm", "ffn_norm"),
    }
)
_HEAD_NORMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "attn.q_norm": ("self_attn.q_norm", "attn_q_norm"),
        "attn.k_norm": ("self_attn.k_norm", "attn_k_norm"),
    }
)
#: The rules for a layer's attention tensors.
AttentionRules = Callable[[int], Iterator[TensorRule]]


@dataclass(frozen=True)
class Biases:
    """Which linears carry a bias: always, or only where the checkpoint has the tensor."""

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


def decoder_rules(
    config: ModelConfig,
    kind: CheckpointKind,
    biases: Biases,
    *,
    head_norms: bool = False,
    attention: AttentionRules | None = None,
) -> Iterator[TensorRule]:
    """Rules for every tensor of a Llama-shaped decoder, in package order.

    `head_norms` asks for the weights of an RMSNorm over each query and key head. `attention` gives the
    rules of a layer's attention where it is another than grouped-query attention.
    """
    style = 0 if kind == "huggingface" else 1
    table = (config.vocab_size, config.hidden_size)
    yield TensorRule(
        "embed.weight", ("model.embed_tokens.weight", "token_embd.weight")[style], table, "embedding"
    )
    for layer in range(config.num_layers):
        yield from _layer_rules(config, layer, style, biases, head_norms, attention)
    yield TensorRule(
        "final_norm.weight",
        ("model.norm.weight", "output_norm.weight")[style],
        (config.hidden_size,),
        "vector",
    )
    if not config.tied_embeddings:
        yield TensorRule("head.weight", ("lm_head.weight", "output.weight")[style], table, "linear")


def decoder_shapes(
    config: ModelConfig, biases: Biases, *, head_norms: bool = False, attention: AttentionRules | None = None
) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Package tensor name -> (logical shape, whether it may be absent)."""
    rules = decoder_rules(config, "huggingface", biases, head_norms=head_norms, attention=attention)
    return {rule.name: (rule.shape, rule.optional) for rule in rules}


def permuted(rule: TensorRule, config: ModelConfig) -> int:
    """Heads whose rows GGUF's llama interleaves in this tensor, 0 for none."""
    if ".attn.q." in rule.name:
        return config.num_heads
    return config.num_kv_heads if ".attn.k." in rule.name else 0


def _layer_rules(
    config: ModelConfig,
    layer: int,
    style: int,
    biases: Biases,
    head_norms: bool,
    attention: AttentionRules | None,
) -> Iterator[TensorRule]:
    source = (f"model.layers.{layer}.", f"blk.{layer}.")[style]
    name = f"layers.{layer}."
    shapes = linear_shapes(config)
    for part, norm in (("attn", "attn_norm"), ("mlp", "mlp_norm")):
        vector: Role = "vector"
        yield TensorRule(
            f"{name}{norm}.weight", f"{source}{_NORMS[norm][style]}.weight", (config.hidden_size,), vector
        )
        if part == "mlp" and config.has_experts(layer):
            yield from expert_rules(config, layer, ("huggingface", "gguf")[style])
            continue
        if part == "attn" and attention is not None:
            yield from attention(layer)
            continue
        for linear, names in LINEARS.items():
            if not linear.startswith(part + "."):
                continue
            shape = shapes[linear]
            yield TensorRule(f"{name}{linear}.weight", f"{source}{names[style]}.weight", shape, "linear")
            if linear in biases.required or linear in biases.optional:
                yield TensorRule(
                    f"{name}{linear}.bias",
                    f"{source}{names[style]}.bias",
                    shape[:1],
                    vector,
                    optional=linear not in biases.required,
                )
        if head_norms and part == "attn":
            for norm, names in _HEAD_NORMS.items():
                yield TensorRule(
                    f"{name}{norm}.weight", f"{source}{names[style]}.weight", (config.head_dim,), vector
                )


def linear_shapes(config: ModelConfig) -> Mapping[str, tuple[int, int]]:
    """(output channels, inputs) of each linear of a layer."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "attn.q": (queries, hidden),
        "attn.k": (keys, hidden),
        "attn.v": (keys, hidden),
        "attn.o": (hidden, queries),
        "mlp.gate": (inner, hidden),
        "mlp.up": (inner, hidden),
        "mlp.down": (hidden, inner),
    }
