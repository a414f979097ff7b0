from __future__ import annotations

from typing import Any

import pytest

from edgeseek.architectures import ModelConfig, Rope, expected_tensors, parse_config, tensor_rules
from edgeseek.errors import CheckpointFormatError, MissingTensorError, UnsupportedCheckpointError
from tests.unit.architectures.tiny_models import QKV, QWEN2, QWEN2_GGUF, gguf_file, huggingface

TINY = ModelConfig(
    architecture="qwen2",
    vocab_size=97,
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    max_context=128,
    rms_eps=1e-6,
    rope=Rope(1000000.0),
    tied_embeddings=True,
    bos_token_id=1,
    eos_token_ids=(2,),
)
TEXT = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}


def test_the_tiny_config_is_read_alike_from_a_folder_and_from_a_gguf():
    assert parse_config(huggingface(QWEN2, tied=True)) == TINY
    changes = {"qwen2.attention.layer_norm_rms_epsilon": 1e-6, "qwen2.rope.dimension_count": ...}
    assert parse_config(gguf_file(QWEN2_GGUF, tied=True, text=TEXT, changes=changes)) == TINY


def test_q_k_and_v_have_biases_and_no_rows_are_unpermuted():
    for checkpoint in (
        huggingface(QWEN2, tied=True, biases=QKV),
        gguf_file(QWEN2_GGUF, tied=True, biases=QKV),
    ):
        rules = tensor_rules(parse_config(checkpoint), checkpoint)
        biases = {rule.name: rule.shape for rule in rules if rule.name.endswith(".bias")}
        assert biases == {
            f"layers.{layer}.attn.{part}.bias": shape
            for layer in (0, 1)
            for part, shape in (("q", (64,)), ("k", (32,)), ("v", (32,)))
        }
        assert not any(rule.unpermute_heads for rule in rules)
        assert {rule.name for rule in rules} == set(expected_tensors(parse_config(checkpoint)))


def test_a_missing_bias_is_named():
    checkpoint = gguf_file(QWEN2_GGUF, tied=True, biases=QKV[:2])
    with pytest.raises(MissingTensorError, match="blk.0.attn_v.bias"):
        tensor_rules(parse_config(checkpoint), checkpoint)


def test_untied_embeddings_have_a_head():
    for checkpoint in (
        huggingface(QWEN2, biases=QKV, tie_word_embeddings=False),
        gguf_file(QWEN2_GGUF, biases=QKV),
    ):
        config = parse_config(checkpoint)
        assert not config.tied_embeddings
        assert tensor_rules(config, checkpoint)[-1].name == "head.weight"


@pytest.mark.parametrize(
    ("changes", "spans"),
    [
        ({"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 0}, ()),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, (0, 8)),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, (8, 8)),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}, ()),
        ({"use_sliding_window": True, "sliding_window": 8}, ()),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            (8, 0),
        ),
        ({"use_sliding_window": False, "layer_types": ["full_attention", "full_attention"]}, ()),
    ],
)
def test_the_window_is_spelled_by_layer_number_or_by_type(changes, spans):
    assert parse_config(huggingface(QWEN2, tied=True, **changes)).sliding_windows == spans


def test_an_unknown_layer_type_is_named():
    changes: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 8}
    with pytest.raises(UnsupportedCheckpointError, match="'linear_attention'"):
        parse_config(huggingface(QWEN2, layer_types=["linear_attention", "full_attention"], **changes))
    with pytest.raises(CheckpointFormatError, match="each of 2 layers"):
        parse_config(huggingface(QWEN2, layer_types=["full_attention"], **changes))
