from __future__ import annotations

import pytest

from edgeseek.architectures import ModelConfig, Rope, expected_tensors, parse_config, tensor_rules
from edgeseek.errors import MissingTensorError, UnsupportedCheckpointError
from tests.unit.architectures.tiny_models import QKV, QWEN3, QWEN3_GGUF, gguf_file, huggingface

TINY = ModelConfig(
    architecture="qwen3",
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
    bos_token_id=1,
    eos_token_ids=(2,),
)
TEXT = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}


def test_the_tiny_config_is_read_alike_from_a_folder_and_from_a_gguf():
    assert parse_config(huggingface(QWEN3, norms=True)) == TINY
    assert parse_config(gguf_file(QWEN3_GGUF, norms=True, text=TEXT)) == TINY


def test_each_layer_has_a_norm_of_query_and_key_heads_and_nothing_is_unpermuted():
    for checkpoint, names in (
        (huggingface(QWEN3, norms=True), "model.layers.{layer}.self_attn.{part}_norm.weight"),
        (gguf_file(QWEN3_GGUF, norms=True), "blk.{layer}.attn_{part}_norm.weight"),
    ):
        rules = tensor_rules(parse_config(checkpoint), checkpoint)
        norms = {rule.name: (rule.source, rule.shape, rule.role) for rule in rules if "_norm." in rule.name}
        for layer in (0, 1):
            for part in ("q", "k"):
                source = names.format(layer=layer, part=part)
                assert norms[f"layers.{layer}.attn.{part}_norm.weight"] == (source, (16,), "vector")
        assert not any(rule.unpermute_heads for rule in rules)
        required = {name for name, (_, optional) in expected_tensors(TINY).items() if not optional}
        assert {rule.name for rule in rules} == required


def test_a_missing_norm_is_named():
    checkpoint = huggingface(QWEN3)
    config = parse_config(checkpoint)
    with pytest.raises(MissingTensorError, match="self_attn.q_norm.weight.*qwen3"):
        tensor_rules(config, checkpoint)


def test_a_head_without_stated_width_has_128_dimensions():
    # transformers' default, though the hidden size by the heads would be 16.
    assert parse_config(huggingface(QWEN3, norms=True, head_dim=...)).head_dim == 128


def test_attention_biases_are_those_that_the_config_announces():
    attention = (*QKV, "self_attn.o_proj")
    announced = huggingface(QWEN3, norms=True, biases=attention, attention_bias=True)
    rules = tensor_rules(parse_config(announced), announced)
    assert sum(rule.name.endswith(".bias") for rule in rules) == 2 * 4
    lacking = huggingface(QWEN3, norms=True, biases=QKV, attention_bias=True)
    with pytest.raises(MissingTensorError, match="self_attn.o_proj.bias"):
        tensor_rules(parse_config(lacking), lacking)
    silent = huggingface(QWEN3, norms=True, biases=attention)
    with pytest.raises(UnsupportedCheckpointError, match="self_attn.k_proj.bias"):
        tensor_rules(parse_config(silent), silent)


def test_attention_biases_of_a_gguf_are_taken_as_found():
    checkpoint = gguf_file(QWEN3_GGUF, norms=True, biases=QKV)
    rules = tensor_rules(parse_config(checkpoint), checkpoint)
    assert sum(rule.name.endswith(".bias") for rule in rules) == 2 * 3


def test_windows_are_those_of_qwen2():
    config = parse_config(
        huggingface(
            QWEN3,
            norms=True,
            use_sliding_window=True,
            sliding_window=32,
            layer_types=["full_attention", "sliding_attention"],
        )
    )
    assert config.sliding_windows == (0, 32)
