"""All metadata of a GGUF that is written: general, the architecture's, the sampling defaults, the vocabulary.

A source that is a GGUF keeps its own, except what describes the file rather than the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeseek.architectures import GgufOutline
from edgeseek.checkpoints.gguf import SAMPLING_KEYS
from edgeseek.export.gguf_header import ALIGNMENT
from edgeseek.export.gguf_types import file_type
from edgeseek.export.gguf_vocabulary import vocabulary_metadata
from edgeseek.export.source import ModelSource
from edgeseek.tokenizer import build_tokenizer_json, chat_template_of, special_tokens_of

#: What a source says of its own file.
_OF_THE_FILE = (
    "general.file_type",
    "general.alignment",
    "general.quantization_version",
    "split.",
    "quantize.",
)
#: ggml's version of its quantized blocks.
_QUANTIZATION_VERSION = 2


def metadata_of(source: ModelSource, outline: GgufOutline, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Keys and values in the order in which they are written; `sizes` are bytes by tensor type.

    Raises TokenizerError for a tokenizer that cannot be written.
    """
    file = {
        "general.alignment": ALIGNMENT,
        "general.quantization_version": _QUANTIZATION_VERSION,
        "general.file_type": file_type(sizes),
    }
    text = source.text
    if source.gguf_metadata:
        kept = {key: value for key, value in source.gguf_metadata.items() if not key.startswith(_OF_THE_FILE)}
        return {**kept, **file, **text.gguf_metadata}
    vocabulary = vocabulary_metadata(
        build_tokenizer_json(text), special_tokens_of(text), source.config.vocab_size, chat_template_of(text)
    )
    return {
        "general.architecture": outline.architecture,
        "general.type": "model",
        "general.name": source.name,
        **file,
        **_sampling(text.generation_config),
        **outline.keys,
        **vocabulary,
    }


def _sampling(generation: Mapping[str, Any]) -> dict[str, Any]:
    if not generation.get("do_sample"):
        return {}
    found: dict[str, Any] = {}
    for key, name in SAMPLING_KEYS.items():
        value = generation.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = int(value) if name == "top_k" else float(value)
    return found
