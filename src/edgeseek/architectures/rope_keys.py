"""RoPE parameters from config.json, in both generations of keys.

An unknown scaling, or an unknown key beside a known one, changes the maths, so it is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from edgeseek.architectures.fields import MAX_COUNT, Fields
from edgeseek.architectures.rope import longrope_attention_factor, problem, yarn_mscale
from edgeseek.architectures.spec import Rope
from edgeseek.errors import CheckpointFormatError, UnsupportedCheckpointError

_KNOWN_KEYS = frozenset(
    {
        "rope_type",
        "type",
        "rope_theta",
        "partial_rotary_factor",
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "beta_slow",
        "truncate",
        "mscale",
        "mscale_all_dim",
        "attention_factor",
        "attn_factor",
        "short_factor",
        "long_factor",
        # Whether the model was trained with the scaling; it is applied either way.
        "finetuned",
    }
)


def huggingface_rope(fields: Fields, dims: int) -> Rope:
    """`rope_scaling` with `rope_theta`, or `rope_parameters` (transformers 5), which holds both.

    `dims` of a query's or key's dimensions are rotated. Defaults and precedence are those of
    transformers' modeling_rope_utils.py.

    Raises UnsupportedCheckpointError for an unknown scaling or key, for parameters per layer type, and for
    rotation of a part of each head; CheckpointFormatError for absent or impossible values.
    """
    sections = [fields.section(key) for key in ("rope_scaling", "rope_parameters")]
    given = [section for section in sections if section is not None and section.values]
    for place in (fields, *given):
        if place.number("partial_rotary_factor", 1.0) != 1.0:
            raise UnsupportedCheckpointError(
                f"{place.origin}: partial_rotary_factor is {place.get('partial_rotary_factor')}, "
                f"and only whole heads can be rotated"
            )
    theta = fields.number("rope_theta", 10000.0)
    if not given:
        return Rope(theta=theta)
    parameters = given[0]
    _refuse_unknown(parameters)
    rope = Rope(theta=parameters.number("rope_theta", theta))
    rope = _SCALINGS[_kind(parameters)](rope, fields, parameters)
    wrong = problem(rope, dims)
    if wrong is not None:
        raise CheckpointFormatError(f"{parameters.origin}: RoPE scaling {rope.kind!r}: {wrong}")
    return rope


def extended_context(rope: Rope, stated: int) -> int:
    """The longest context of a model whose config states `stated` positions.

    Configs state what the model was trained on or what it was extended to. "dynamic" always means the
    first; it, YaRN and LongRoPE reach `factor` times the original context.
    """
    if rope.kind in ("dynamic", "yarn", "longrope"):
        return max(stated, int(min(rope.original_context * rope.factor, MAX_COUNT)))
    return stated


def _kind(parameters: Fields) -> str:
    # "type" is the older spelling of "rope_type".
    return parameters.text("rope_type", parameters.text("type", "default"))


def _refuse_unknown(parameters: Fields) -> None:
    nested = [key for key, value in parameters.values.items() if isinstance(value, Mapping)]
    if nested:
        raise UnsupportedCheckpointError(
            f"{parameters.origin} differs by layer type ({', '.join(nested)}), which is not supported"
        )
    if _kind(parameters) not in _SCALINGS:
        raise UnsupportedCheckpointError(
            f"{parameters.origin}: unknown RoPE scaling {_kind(parameters)!r}; "
            f"known are {', '.join(_SCALINGS)}"
        )
    unknown = [key for key in parameters.values if key not in _KNOWN_KEYS and parameters.get(key) is not None]
    if unknown:
        raise UnsupportedCheckpointError(
            f"{parameters.origin}: unknown key {unknown[0]!r}, which may change the result; "
            f"known are {', '.join(sorted(_KNOWN_KEYS))}"
        )


def _default(rope: Rope, _fields: Fields, _parameters: Fields) -> Rope:
    return rope


def _linear(rope: Rope, _fields: Fields, parameters: Fields) -> Rope:
    return replace(rope, kind="linear", factor=parameters.number("factor"))


def _dynamic(rope: Rope, fields: Fields, parameters: Fields) -> Rope:
    trained = fields.count("max_position_embeddings")
    return replace(rope, kind="dynamic", factor=parameters.number("factor"), original_context=trained)


def _llama3(rope: Rope, fields: Fields, parameters: Fields) -> Rope:
    return replace(
        rope,
        kind="llama3",
        factor=parameters.number("factor"),
        original_context=_original_context(fields, parameters),
        low_freq_factor=parameters.number("low_freq_factor"),
        high_freq_factor=parameters.number("high_freq_factor"),
    )


def _yarn(rope: Rope, fields: Fields, parameters: Fields) -> Rope:
    original = _original_context(fields, parameters)
    factor = parameters.number("factor", fields.count("max_position_embeddings") / original)
    mscale, all_dim = (_number_or_zero(parameters, key) for key in ("mscale", "mscale_all_dim"))
    inferred = yarn_mscale(factor)
    if mscale and all_dim:
        inferred = yarn_mscale(factor, mscale) / yarn_mscale(factor, all_dim)
    return replace(
        rope,
        kind="yarn",
        factor=factor,
        original_context=original,
        beta_fast=_number_or_zero(parameters, "beta_fast") or 32.0,
        beta_slow=_number_or_zero(parameters, "beta_slow") or 1.0,
        truncate=parameters.flag("truncate", True),
        mscale_all_dim=all_dim,
        # DeepSeek-R1-0528-Qwen3-8B spells it attn_factor, as vLLM does: that multiplies what is inferred.
        attention_factor=parameters.number(
            "attention_factor", inferred * parameters.number("attn_factor", 1.0)
        ),
    )


def _longrope(rope: Rope, fields: Fields, parameters: Fields) -> Rope:
    original = _original_context(fields, parameters)
    factor = parameters.number("factor", fields.count("max_position_embeddings") / original)
    inferred = longrope_attention_factor(factor, max(2, original))
    return replace(
        rope,
        kind="longrope",
        factor=factor,
        original_context=original,
        attention_factor=parameters.number("attention_factor", inferred),
        factors=parameters.numbers("short_factor"),
        long_factors=parameters.numbers("long_factor"),
    )


_SCALINGS: Mapping[str, Callable[[Rope, Fields, Fields], Rope]] = MappingProxyType(
    {
        "default": _default,
        "linear": _linear,
        "dynamic": _dynamic,
        "llama3": _llama3,
        "yarn": _yarn,
        "longrope": _longrope,
    }
)


def _original_context(fields: Fields, parameters: Fields) -> int:
    """What was trained; the top level's value goes before the scaling's own."""
    key = "original_max_position_embeddings"
    places = (place for place in (fields, parameters) if place.get(key) is not None)
    place = next(places, None)
    return fields.count("max_position_embeddings") if place is None else place.count(key)


def _number_or_zero(parameters: Fields, key: str) -> float:
    """A positive number; 0 where the key is absent, null or 0."""
    value = parameters.get(key)
    absent = value is None or (value == 0 and not isinstance(value, bool))
    return 0.0 if absent else parameters.number(key)
