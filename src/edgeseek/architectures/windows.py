"""Sliding windows as config.json spells them: the attention span of each layer, 0 for all positions."""

from __future__ import annotations

from edgeseek.architectures.fields import MAX_LAYERS, Fields
from edgeseek.errors import CheckpointFormatError, UnsupportedCheckpointError

_SPANS = {"full_attention": False, "sliding_attention": True}


def mistral_windows(fields: Fields) -> tuple[int, ...]:
    """One span for all layers of a Mistral; empty where all see everything."""
    # An explicit null means full attention; an absent key means Mistral's default.
    if "sliding_window" in fields.values and fields.get("sliding_window") is None:
        return ()
    return (fields.count("sliding_window", 4096),) * fields.count("num_hidden_layers", most=MAX_LAYERS)


def qwen_windows(fields: Fields) -> tuple[int, ...]:
    """Span per layer of Qwen2 and Qwen3: by `layer_types`, else the layers from `max_window_layers` up.

    Empty where no layer slides. Raises CheckpointFormatError and UnsupportedCheckpointError as `Fields` does,
    and for a type of layer that is not known.
    """
    layers = fields.count("num_hidden_layers", most=MAX_LAYERS)
    if not fields.flag("use_sliding_window", False) or fields.get("sliding_window") == 0:
        return ()
    span = fields.count("sliding_window", 4096)
    types = fields.get("layer_types")
    if types is None:
        first = fields.get("max_window_layers")
        first = 28 if first is None else first
        if isinstance(first, bool) or not isinstance(first, int) or first < 0:
            raise CheckpointFormatError(
                f"{fields.origin}: 'max_window_layers' is {first!r}, not a layer number"
            )
        slides = [layer >= first for layer in range(layers)]
    else:
        if not isinstance(types, list | tuple) or len(types) != layers:
            raise CheckpointFormatError(
                f"{fields.origin}: 'layer_types' does not name one type for each of {layers} layers"
            )
        for kind in types:
            if not isinstance(kind, str) or kind not in _SPANS:
                raise UnsupportedCheckpointError(
                    f"{fields.origin}: unknown layer type {kind!r}; known are {', '.join(_SPANS)}"
                )
        slides = [_SPANS[kind] for kind in types]
    return tuple(span if slide else 0 for slide in slides) if any(slides) else ()
