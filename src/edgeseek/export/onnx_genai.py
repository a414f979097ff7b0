"""The files that onnxruntime-genai reads beside a graph, and what a runtime finds in the graph's metadata.

Source of the keys: https://onnxruntime.ai/docs/genai/reference/config.html. Knows nothing of weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgeseek.architectures import ModelConfig

GENAI_CONFIG_NAME = "genai_config.json"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"


def genai_config(
    config: ModelConfig,
    *,
    graph_file: str,
    max_positions: int,
    shares_buffer: bool,
    generation: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of genai_config.json. `shares_buffer` says that past and present may be one buffer."""
    ends = _ids(generation.get("eos_token_id")) or list(config.eos_token_ids)
    starts = _ids(generation.get("bos_token_id"))
    start = starts[0] if starts else config.bos_token_id
    sampled = bool(generation.get("do_sample", False))
    return {
        "model": {
            # onnxruntime-genai requires both; a model without them never draws them.
            "bos_token_id": 0 if start is None else start,
            "eos_token_id": ends[0] if len(ends) == 1 else ends,
            "pad_token_id": ends[0] if ends else 0,
            "context_length": max_positions,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": graph_file,
                "head_size": config.head_dim,
                "hidden_size": config.hidden_size,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": config.num_heads,
                "num_hidden_layers": config.num_layers,
                "num_key_value_heads": config.num_kv_heads,
            },
            "type": config.architecture,
            "vocab_size": config.vocab_size,
        },
        "search": {
            "do_sample": sampled,
            "early_stopping": True,
            "max_length": max_positions,
            "min_length": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "past_present_share_buffer": shares_buffer,
            "repetition_penalty": _number(generation, "repetition_penalty", 1.0),
            "temperature": _number(generation, "temperature", 1.0),
            "top_k": int(_number(generation, "top_k", 50 if sampled else 1)),
            "top_p": _number(generation, "top_p", 1.0),
        },
    }


def tokenizer_config(tokenizer_json: bytes, config: ModelConfig, template: str | None) -> dict[str, Any]:
    """The content of tokenizer_config.json: the special tokens' texts and the chat template."""
    tokens = {
        entry["id"]: entry["content"]
        for entry in json.loads(tokenizer_json).get("added_tokens", ())
        if isinstance(entry, dict) and "id" in entry and "content" in entry
    }
    values: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False}
    end = config.eos_token_ids[0] if config.eos_token_ids else None
    for key, token in (("bos_token", config.bos_token_id), ("eos_token", end), ("pad_token", end)):
        if token is not None and token in tokens:
            values[key] = tokens[token]
    if template is not None:
        values["chat_template"] = template
    return values


def _ids(value: Any) -> list[int]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if type(item) is int]


def _number(generation: Mapping[str, Any], key: str, default: float) -> float:
    value = generation.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else default
