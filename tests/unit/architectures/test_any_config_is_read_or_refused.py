from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeseek.architectures import ModelConfig, parse_config
from edgeseek.architectures.rope import inverse_frequencies
from edgeseek.errors import CheckpointError
from tests.unit.architectures.tiny_models import LLAMA, LLAMA_GGUF, QWEN2, QWEN3, gguf_file, huggingface

SCALING_KEYS = [
    "rope_theta",
    "original_max_position_embeddings",
    "low_freq_factor",
    "high_freq_factor",
    "mscale",
    "mscale_all_dim",
    "attn_factor",
    "beta_fast",
    "beta_slow",
    "short_factor",
    "long_factor",
]
ROPE_KEYS = ["factor", "rope_type", "type", "quant_method", "x", *SCALING_KEYS]
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["linear", "default", "dynamic", "llama3", "yarn", "longrope", "sliding_attention"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(ROPE_KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=5,
)
FOLDER_KEYS = [
    *LLAMA,
    "head_dim",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "attention_bias",
    "quantization_config",
    "partial_rotary_factor",
]
GGUF_KEYS = [
    *LLAMA_GGUF,
    "llama.rope.freq_base",
    "llama.rope.scaling.type",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.attn_factor",
    "llama.rope.scaling.yarn_beta_fast",
    "llama.rope.scaling.original_context_length",
    "llama.attention.sliding_window",
    "llama.attention.key_length",
    "llama.expert_count",
    "llama.attention.causal",
]


@settings(deadline=None, max_examples=300)
@given(
    base=st.sampled_from([LLAMA, QWEN2, QWEN3]),
    changes=st.dictionaries(st.sampled_from(FOLDER_KEYS), JSON, min_size=1, max_size=3),
    generation=st.dictionaries(st.just("eos_token_id"), JSON, max_size=1),
)
def test_a_config_json_with_any_values(base, changes, generation):
    checkpoint = huggingface({**base, **changes}, generation=generation)
    with suppress(CheckpointError):
        check(parse_config(checkpoint))


@settings(deadline=None, max_examples=300)
@given(changes=st.dictionaries(st.sampled_from(GGUF_KEYS), JSON, min_size=1, max_size=3), text=JSON)
def test_gguf_metadata_with_any_values(changes, text):
    checkpoint = gguf_file(LLAMA_GGUF, changes=changes, text={"tokenizer.ggml.eos_token_id": text})
    with suppress(CheckpointError):
        check(parse_config(checkpoint))


ROPE_VALUES = st.one_of(
    st.sampled_from([1, 2.0, 8, 16, 0.5, 1e-300, 1e300, 10000.0]),
    st.lists(st.floats(0.1, 9), min_size=8, max_size=8),
)


@settings(deadline=None, max_examples=300)
@given(
    kind=st.sampled_from(["linear", "dynamic", "llama3", "yarn", "longrope"]),
    scaling=st.dictionaries(st.sampled_from(SCALING_KEYS), ROPE_VALUES, min_size=1, max_size=6),
    factor=st.sampled_from([1.0, 1.5, 4, 1e9]),
)
def test_any_numbers_of_a_scaling(kind, scaling, factor):
    checkpoint = huggingface(LLAMA, rope_scaling={"rope_type": kind, "factor": factor, **scaling})
    with suppress(CheckpointError):
        check(parse_config(checkpoint))


def check(config: ModelConfig) -> None:
    """What was read can be written, read again and rotated by."""
    assert ModelConfig.from_json(config.to_json()) == config
    if config.head_dim <= 64:
        for context in (1, config.max_context):
            frequencies = inverse_frequencies(config.rope, config.head_dim, context)
            assert frequencies.shape == (config.head_dim // 2,)
            assert (frequencies >= 0).all()


def test_a_number_beyond_a_float_is_malformed():
    with pytest.raises(CheckpointError, match="rope_theta"):
        parse_config(huggingface(LLAMA, rope_theta=10**400))
