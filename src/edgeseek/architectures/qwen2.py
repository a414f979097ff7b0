"""Qwen2 and Qwen2.5 (Qwen2ForCausalLM): biases on q, k and v, a sliding window on the upper layers.

DeepSeek-R1-Distill-Qwen is of this family. GGUF calls it "qwen2" and stores Q and K rows in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgeseek.architectures.decoder import Biases, decoder_rules, decoder_shapes
from edgeseek.architectures.decoder_config import gguf_config, huggingface_config
from edgeseek.architectures.family import Family
from edgeseek.architectures.fields import config_fields
from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.architectures.windows import qwen_windows
from edgeseek.checkpoints.base import Checkpoint

_BIASES = Biases(required=frozenset({"attn.q", "attn.k", "attn.v"}))


def parse_config(checkpoint: Checkpoint) -> ModelConfig:
    """ModelConfig of a Qwen2 checkpoint of either kind."""
    if checkpoint.kind == "gguf":
        return gguf_config(checkpoint, "qwen2")
    fields = config_fields(checkpoint)
    return huggingface_config(
        checkpoint,
        fields,
        architecture="qwen2",
        sliding_windows=qwen_windows(fields),
    )


def rules(config: ModelConfig, checkpoint: Checkpoint) -> Iterable[TensorRule]:
    """Rules for every tensor; the three biases always exist."""
    return decoder_rules(config, checkpoint.kind, _BIASES)


def shapes(config: ModelConfig) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Package tensors; none may be absent."""
    return decoder_shapes(config, _BIASES)


FAMILY = Family(
    name="qwen2",
    huggingface_names=("Qwen2ForCausalLM",),
    gguf_names=("qwen2",),
    parse_config=parse_config,
    rules=rules,
    shapes=shapes,
    writes_gguf=True,
)
