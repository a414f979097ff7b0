"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): its keys and the rules for its tensors.

Knows the two naming styles. Checkpoints hold `kv_b`, which makes each head's keys and values out of the
latent vector; the core wants its two halves apart, that of the keys transposed, since it never leaves the
latent space. Newer GGUF files hold them so (`attn_k_b`, `attn_v_b`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from edgeseek.architectures.decoder import Biases
from edgeseek.architectures.fields import Fields
from edgeseek.architectures.spec import HeadRows, LatentAttention, ModelConfig, TensorRule
from edgeseek.checkpoints.base import Checkpoint
from edgeseek.errors import CheckpointFormatError

#: Package name -> (Hugging Face name, GGUF name) of everything but the halves of kv_b.
_NAMES = {
    "q": ("q_proj", "attn_q"),
    "q_a": ("q_a_proj", "attn_q_a"),
    "q_a_norm": ("q_a_layernorm", "attn_q_a_norm"),
    "q_b": ("q_b_proj", "attn_q_b"),
    "kv_a": ("kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    "kv_a_norm": ("kv_a_layernorm", "attn_kv_a_norm"),
    "o": ("o_proj", "attn_output"),
}
#: The linears that DeepSeek's `attention_bias` gives a bias.
BIASED = frozenset({"attn.q_a", "attn.kv_a", "attn.o"})


def huggingface_latent(fields: Fields) -> LatentAttention:
    """The sizes in a config.json with DeepSeek's keys; a `q_lora_rank` of null means plain queries."""
    return LatentAttention(
        rank=fields.count("kv_lora_rank"),
        query_rank=0 if fields.get("q_lora_rank") is None else fields.count("q_lora_rank"),
        plain_dim=fields.count("qk_nope_head_dim"),
        rotated_dim=_even(fields, "qk_rope_head_dim"),
        value_dim=fields.count("v_head_dim"),
    )


def gguf_latent(fields: Fields) -> LatentAttention:
    """The sizes in GGUF metadata.

    Files with `attn_kv_b` state a head's own lengths as `attention.key_length`; those with `attn_k_b` state
    the latent space's there, and a head's as `attention.key_length_mla`.
    """
    suffix = "" if fields.get("attention.key_length_mla") is None else "_mla"
    rotated = _even(fields, "rope.dimension_count")
    keys = fields.count("attention.key_length" + suffix)
    if keys <= rotated:
        raise CheckpointFormatError(
            f"{fields.origin}: keys of {keys} dimensions cannot have {rotated} that are rotated "
            f"and others beside"
        )
    return LatentAttention(
        rank=fields.count("attention.kv_lora_rank"),
        query_rank=fields.count("attention.q_lora_rank") if fields.get("attention.q_lora_rank") else 0,
        plain_dim=keys - rotated,
        rotated_dim=rotated,
        value_dim=fields.count("attention.value_length" + suffix),
    )


def check_latent(latent: LatentAttention) -> None:
    """Hold a package's sizes to their types. Raises ValueError for what cannot be."""
    for name in ("rank", "plain_dim", "rotated_dim", "value_dim", "query_rank"):
        value: Any = getattr(latent, name)
        if type(value) is not int or not (0 if name == "query_rank" else 1) <= value < 1 << 28:
            raise ValueError(f"latent.{name} is {value!r}")
    epsilon: Any = latent.rms_eps
    if not isinstance(epsilon, int | float) or isinstance(epsilon, bool) or not 0 < epsilon < 1:
        raise ValueError(f"latent.rms_eps is {epsilon!r}")


def latent_rules(
    config: ModelConfig,
    layer: int,
    checkpoint: Checkpoint | None,
    biases: Biases,
    *,
    interleaved: bool = True,
) -> Iterator[TensorRule]:
    """Rules for the attention tensors of `layer`, in package order.

    `checkpoint` None gives the names alone. `interleaved` says that the rotated rows come as pairs of
    neighbours, as both kinds of DeepSeek checkpoints have them: they are restored to halves.
    """
    latent, heads = config.latent, config.num_heads
    if latent is None:
        raise ValueError("the config has no latent attention")
    gguf = checkpoint is not None and checkpoint.kind == "gguf"
    source = f"blk.{layer}." if gguf else f"model.layers.{layer}.self_attn."
    hidden, queries = config.hidden_size, heads * config.head_dim

    def linear(part: str, shape: tuple[int, int], rotated_heads: int = 0) -> Iterator[TensorRule]:
        stored = source + _NAMES[part][gguf]
        name = f"layers.{layer}.attn.{part}"
        rule = TensorRule(name + ".weight", stored + ".weight", shape, "linear")
        if interleaved and rotated_heads:
            rule = replace(rule, unpermute_heads=rotated_heads, unpermute_rows=latent.rotated_dim)
        yield rule
        if f"attn.{part}" in biases.required | biases.optional:
            optional = f"attn.{part}" not in biases.required
            yield replace(
                rule,
                name=name + ".bias",
                source=stored + ".bias",
                shape=shape[:1],
                role="vector",
                optional=optional,
            )

    def norm(part: str, size: int) -> TensorRule:
        return TensorRule(
            f"layers.{layer}.attn.{part}.weight", f"{source}{_NAMES[part][gguf]}.weight", (size,), "vector"
        )

    if latent.query_rank:
        yield from linear("q_a", (latent.query_rank, hidden))
        yield norm("q_a_norm", latent.query_rank)
        yield from linear("q_b", (queries, latent.query_rank), heads)
    else:
        yield from linear("q", (queries, hidden), heads)
    yield from linear("kv_a", (latent.width, hidden), 1)
    yield norm("kv_a_norm", latent.rank)
    split = gguf and checkpoint is not None and f"{source}attn_k_b.weight" in checkpoint.tensors
    yield from _halves(latent, heads, f"layers.{layer}.attn.", source, gguf=gguf, split=split)
    yield from linear("o", (hidden, heads * latent.value_dim))


def _halves(
    latent: LatentAttention, heads: int, name: str, source: str, *, gguf: bool, split: bool
) -> Iterator[TensorRule]:
    """k_b and v_b: as they are, or out of kv_b, whose rows are each head's keys and then its values."""
    keys, values, rank = latent.plain_dim, latent.value_dim, latent.rank
    for part, rows, columns in (("k_b", rank, keys), ("v_b", values, rank)):
        shape = (heads * rows, columns)
        if split:
            stored = f"{source}attn_{part}.weight"
            yield TensorRule(
                f"{name}{part}.weight", stored, shape, "linear", stored_shape=(heads, rows, columns)
            )
            continue
        first, count = (0, keys) if part == "k_b" else (keys, values)
        yield TensorRule(
            f"{name}{part}.weight",
            source + ("attn_kv_b.weight" if gguf else "kv_b_proj.weight"),
            shape,
            "linear",
            stored_shape=(heads * (keys + values), rank),
            head_rows=HeadRows(heads, keys + values, first, count, transposed=part == "k_b"),
        )


def _even(fields: Fields, key: str) -> int:
    value = fields.count(key)
    if value % 2:
        raise CheckpointFormatError(
            f"{fields.origin}: {fields.prefix}{key} is {value}, and dimensions are rotated in pairs"
        )
    return value
