"""RoPE parameters from config.json (both generations of keys) and from GGUF metadata.

An unknown scaling changes the maths, so it is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgeseek.architectures.fields import Fields
from edgeseek.architectures.spec import Rope
from edgeseek.checkpoints.base import LazyTensor
from edgeseek.errors import UnsupportedCheckpointError

KNOWN_SCALINGS = ("default", "linear")


def huggingface_rope(fields: Fields) -> Rope:
    """`rope_parameters` (transformers 5), else `rope_theta` with `rope_scaling`.

    Raises UnsupportedCheckpointError for a scaling that is not in `KNOWN_SCALINGS`, for parameters per
    layer type, and for rotation of a part of each head.
    """
    for place in (fields, fields.section("rope_parameters"), fields.section("rope_scaling")):
        if place is not None and place.number("partial_rotary_factor", 1.0) != 1.0:
            raise UnsupportedCheckpointError(
                f"{place.origin}: partial_rotary_factor is {place.get('partial_rotary_factor')}, "
                f"and only whole heads can be rotated"
            )
    parameters = fields.section("rope_parameters") or fields.section("rope_scaling")
    theta = fields.number("rope_theta", 10000.0)
    if parameters is None or not parameters.values:
        return Rope(theta=theta)
    nested = [key for key, value in parameters.values.items() if isinstance(value, Mapping)]
    if nested:
        raise UnsupportedCheckpointError(
            f"{parameters.origin} differs by layer type ({', '.join(nested)}), which is not supported"
        )
    theta = parameters.number("rope_theta", theta)
    # "type" is the older spelling of "rope_type".
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    return _rope(kind, theta, parameters, "factor")


def gguf_rope(fields: Fields, tensors: Mapping[str, LazyTensor], head_dim: int) -> Rope:
    """`rope.freq_base` and `rope.scaling.*`, or the older `rope.scale_linear`.

    Raises UnsupportedCheckpointError for an unknown scaling, which includes the frequency factors of
    Llama 3 that a GGUF keeps as a tensor, and for rotation of a part of each head.
    """
    if "rope_freqs.weight" in tensors:
        raise unsupported_scaling(fields.origin, "llama3", "the tensor rope_freqs.weight")
    rotated = fields.count("rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise UnsupportedCheckpointError(
            f"{fields.origin}: {fields.prefix}rope.dimension_count is {rotated}, "
            f"and only whole heads ({head_dim} dimensions) can be rotated"
        )
    theta = fields.number("rope.freq_base", 10000.0)
    kind = fields.text("rope.scaling.type", "none")
    if kind == "none":
        factor = fields.number("rope.scale_linear", 1.0)
        return Rope(theta, "linear", factor) if factor != 1.0 else Rope(theta)
    return _rope(kind, theta, fields, "rope.scaling.factor")


def unsupported_scaling(origin: str, kind: str, found_as: str) -> UnsupportedCheckpointError:
    """The error for a RoPE scaling of that name; `found_as` says where it stood."""
    return UnsupportedCheckpointError(
        f"{origin}: unknown RoPE scaling {kind!r} ({found_as}); known are {', '.join(KNOWN_SCALINGS)}"
    )


def _rope(kind: str, theta: float, parameters: Fields, factor_key: str) -> Rope:
    if kind == "default":
        return Rope(theta=theta)
    if kind == "linear":
        return Rope(theta=theta, kind="linear", factor=parameters.number(factor_key))
    key = factor_key.replace("factor", "type")
    raise unsupported_scaling(parameters.origin, kind, parameters.prefix + key)
