"""RoPE parameters from a GGUF's metadata and from the tensors in which it keeps frequency factors.

Llama 3's scaling is such a tensor; "dynamic" has no spelling in GGUF. What is unknown is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgeseek.architectures.fields import Fields
from edgeseek.architectures.rope import problem, yarn_mscale
from edgeseek.architectures.spec import Rope
from edgeseek.checkpoints.base import LazyTensor
from edgeseek.errors import CheckpointFormatError, MissingTensorError, UnsupportedCheckpointError

#: Tensors that hold divisors of the frequencies, [dimensions / 2] each.
FREQUENCY_FACTORS = "rope_freqs.weight"
SHORT_FACTORS = "rope_factors_short.weight"
LONG_FACTORS = "rope_factors_long.weight"
#: All tensors that `gguf_rope` reads: no rule of a family needs to name them.
ROPE_TENSORS = frozenset({FREQUENCY_FACTORS, SHORT_FACTORS, LONG_FACTORS})
#: All metadata that `gguf_rope` reads, without the architecture's prefix.
ROPE_KEYS = frozenset(
    {
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scale_linear",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
        "rope.scaling.attn_factor",
        "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
    }
)
#: A tenth of mscale_all_dim, which equals mscale: so "deepseek2" stores it.
LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_KNOWN = ("none", "linear", "yarn", "longrope")


def gguf_rope(
    fields: Fields, tensors: Mapping[str, LazyTensor], dims: int, *, log_multiplier: bool = False
) -> Rope:
    """`rope.freq_base`, `rope.scaling.*` (or the older `rope.scale_linear`) and the factors kept as tensors.

    `dims` of a query's or key's dimensions are rotated. `log_multiplier` reads LOG_MULTIPLIER too.

    Raises UnsupportedCheckpointError for an unknown scaling and for rotation of a part of `dims`,
    CheckpointFormatError for absent or impossible values, MissingTensorError for absent factors.
    """
    rotated = fields.count("rope.dimension_count", dims)
    if rotated != dims:
        raise UnsupportedCheckpointError(
            f"{fields.origin}: {fields.prefix}rope.dimension_count is {rotated}, "
            f"and only whole heads ({dims} dimensions) can be rotated"
        )
    rope = Rope(theta=fields.number("rope.freq_base", 10000.0))
    # As in llama.cpp, a factor without a type is linear.
    kind = fields.text("rope.scaling.type", "linear")
    if kind == "linear":
        factor = fields.number("rope.scaling.factor", fields.number("rope.scale_linear", 1.0))
        rope = replace(rope, kind="linear", factor=factor) if factor != 1.0 else rope
    elif kind == "yarn":
        rope = _yarn(rope, fields, log_multiplier)
    elif kind == "longrope":
        rope = _longrope(rope, fields, tensors, dims)
    elif kind != "none":
        raise UnsupportedCheckpointError(
            f"{fields.origin}: unknown RoPE scaling {kind!r} ({fields.prefix}rope.scaling.type); "
            f"known are {', '.join(_KNOWN)}"
        )
    if FREQUENCY_FACTORS in tensors:
        if rope.kind != "default":
            raise UnsupportedCheckpointError(
                f"{fields.origin}: the tensor {FREQUENCY_FACTORS!r} comes with {rope.kind!r} scaling, "
                f"and only one of the two can be applied"
            )
        rope = replace(rope, kind="factors", factors=_factors(fields, tensors, FREQUENCY_FACTORS, dims))
    if rope.kind not in ("yarn", "longrope") and fields.number("rope.scaling.attn_factor", 1.0) != 1.0:
        raise UnsupportedCheckpointError(
            f"{fields.origin}: {fields.prefix}rope.scaling.attn_factor is "
            f"{fields.get('rope.scaling.attn_factor')}, which only yarn and longrope use"
        )
    wrong = problem(rope, dims)
    if wrong is not None:
        raise CheckpointFormatError(f"{fields.origin}: RoPE scaling {rope.kind!r}: {wrong}")
    return rope


def _yarn(rope: Rope, fields: Fields, log_multiplier: bool) -> Rope:
    factor = fields.number("rope.scaling.factor")
    inferred, all_dim = yarn_mscale(factor), 0.0
    if log_multiplier and fields.get(LOG_MULTIPLIER) is not None:
        # Six digits undo the rounding to binary32, so that a GGUF means what its config.json meant.
        inferred, all_dim = 1.0, float(f"{10 * fields.number(LOG_MULTIPLIER):.6g}")
    return replace(
        rope,
        kind="yarn",
        factor=factor,
        original_context=_original_context(fields),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
        mscale_all_dim=all_dim,
        # ggml multiplies what it infers from the factor.
        attention_factor=inferred
        * fields.number("rope.scaling.attn_factor", 1.0)
        * fields.number("rope.scaling.yarn_attn_factor", 1.0),
    )


def _longrope(rope: Rope, fields: Fields, tensors: Mapping[str, LazyTensor], dims: int) -> Rope:
    original = _original_context(fields)
    return replace(
        rope,
        kind="longrope",
        factor=max(1.0, fields.count("context_length") / original),
        original_context=original,
        # Converters store it ready for use.
        attention_factor=fields.number("rope.scaling.attn_factor", 1.0),
        factors=_factors(fields, tensors, SHORT_FACTORS, dims),
        long_factors=_factors(fields, tensors, LONG_FACTORS, dims),
    )


def _original_context(fields: Fields) -> int:
    return fields.count("rope.scaling.original_context_length", fields.count("context_length"))


def _factors(fields: Fields, tensors: Mapping[str, LazyTensor], name: str, dims: int) -> tuple[float, ...]:
    tensor = tensors.get(name)
    if tensor is None:
        raise MissingTensorError(f"{fields.origin}: no tensor {name!r}, which its RoPE scaling needs")
    if tensor.dtype != "F32" or tuple(tensor.shape) != (dims // 2,):
        raise CheckpointFormatError(
            f"{fields.origin}: {name!r} is {tensor.dtype} {list(tensor.shape)}, "
            f"and F32 [{dims // 2}] is needed"
        )
    return tuple(float(value) for value in tensor.read_rows(0, 1).reshape(-1).view("<f4"))
