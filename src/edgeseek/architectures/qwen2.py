"""Qwen2 and Qwen2.5 (Qwen2ForCausalLM): biases on q, k and v, a sliding window on the upper layers.

DeepSeek-R1-Distill-Qwen is of this family. GGUF calls it "qwen2" and stores Q and K rows in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgeseek.architectures.decoder import (
    Biases,
    decoder_rules,
    decoder_shapes,
    gguf_config,
    huggingface_config,
)
from edgeseek.architectures.family import Family
from edgeseek.architectures.fields import MAX_LAYERS, Fields, config_fields
from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.checkpoints.base import Checkpoint
from edgeseek.errors import CheckpointFormatError, UnsupportedCheckpointError

_BIASES = Biases(required=frozenset({"attn.q", "attn.k", "attn.v"}))
_SPANS = {"full_attention": False, "sliding_attention": True}


def parse_config(checkpoint: Checkpoint) -> ModelConfig:
    """ModelConfig of a Qwen2 checkpoint of either kind."""
    if checkpoint.kind == "gguf":
        return gguf_config(checkpoint, "qwen2")
    fields = config_fields(checkpoint)
    return huggingface_config(
        checkpoint,
        fields,
        architecture="qwen2",
        sliding_windows=_windows(fields),
    )


def rules(config: ModelConfig, checkpoint: Checkpoint) -> Iterable[TensorRule]:
    """Rules for every tensor; the three biases always exist."""
    return decoder_rules(config, checkpoint.kind, _BIASES)


def shapes(config: ModelConfig) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Package tensors; none may be absent."""
    return decoder_shapes(config, _BIASES)


def _windows(fields: Fields) -> tuple[int, ...]:
    """Span per layer: `layer_types` where given, else the layers from `max_window_layers` up."""
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


FAMILY = Family(
    name="qwen2",
    huggingface_names=("Qwen2ForCausalLM",),
    gguf_names=("qwen2",),
    parse_config=parse_config,
    rules=rules,
    shapes=shapes,
)
