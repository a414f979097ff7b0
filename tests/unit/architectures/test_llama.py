from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from edgeseek.architectures import (
    ModelConfig,
    Rope,
    expected_tensors,
    ignored_tensors,
    parse_config,
    tensor_rules,
)
from edgeseek.errors import CheckpointFormatError, UnsupportedCheckpointError
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, FakeTensor
from tests.unit.architectures.tiny_models import LLAMA, LLAMA_GGUF, QKV, gguf_file, huggingface

Rows = npt.NDArray[np.uint8]
TINY = ModelConfig(
    architecture="llama",
    vocab_size=97,
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    max_context=128,
    rms_eps=1e-5,
    rope=Rope(10000.0),
    tied_embeddings=False,
    bos_token_id=1,
    eos_token_ids=(2,),
)
TEXT = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}


def test_the_tiny_config_is_read_alike_from_a_folder_and_from_a_gguf():
    assert parse_config(huggingface(LLAMA)) == TINY
    assert parse_config(gguf_file(LLAMA_GGUF, text=TEXT)) == TINY


def test_rules_name_every_tensor_with_its_source_and_shape():
    checkpoint = gguf_file(LLAMA_GGUF)
    rules = {rule.name: rule for rule in tensor_rules(parse_config(checkpoint), checkpoint)}
    assert len(rules) == 2 * 9 + 3
    assert next(iter(rules)) == "embed.weight"
    assert list(rules)[-2:] == ["final_norm.weight", "head.weight"]
    assert (rules["embed.weight"].source, rules["embed.weight"].role) == ("token_embd.weight", "embedding")
    down = rules["layers.1.mlp.down.weight"]
    assert (down.source, down.shape, down.role) == ("blk.1.ffn_down.weight", (64, 96), "linear")
    assert rules["layers.0.mlp_norm.weight"].source == "blk.0.ffn_norm.weight"
    assert set(rules) == {name for name, (_, optional) in expected_tensors(TINY).items() if not optional}


def test_only_q_and_k_of_a_gguf_are_unpermuted_by_their_own_heads():
    checkpoint = gguf_file(LLAMA_GGUF, biases=QKV)
    rules = tensor_rules(parse_config(checkpoint), checkpoint)
    heads = {rule.name: rule.unpermute_heads for rule in rules if rule.unpermute_heads}
    assert heads == {
        f"layers.{layer}.attn.{part}.{end}": count
        for layer in (0, 1)
        for part, count in (("q", 4), ("k", 2))
        for end in ("weight", "bias")
    }
    folder = huggingface(LLAMA)
    assert all(rule.unpermute_heads == 0 for rule in tensor_rules(parse_config(folder), folder))


def test_a_tied_head_is_left_out():
    folder = huggingface(LLAMA, tied=True, tie_word_embeddings=True)
    file = gguf_file(LLAMA_GGUF, tied=True)
    for checkpoint in (folder, file):
        config = parse_config(checkpoint)
        assert config.tied_embeddings
        assert "head.weight" not in {rule.name for rule in tensor_rules(config, checkpoint)}


def with_both_tables(embedding: Rows, head: Rows) -> FakeCheckpoint:
    """A folder whose config ties the tables, of F16 values with those bytes."""
    checkpoint = huggingface(LLAMA, tie_word_embeddings=True)
    tables = {
        name: FakeTensor(name, "F16", (97, 64), data)
        for name, data in (("model.embed_tokens.weight", embedding), ("lm_head.weight", head))
    }
    return replace(checkpoint, tensors={**checkpoint.tensors, **tables})


def test_a_head_that_repeats_the_tied_embedding_is_ignored():
    checkpoint = with_both_tables(np.ones((97, 128), np.uint8), np.ones((97, 128), np.uint8))
    rules = tensor_rules(parse_config(checkpoint), checkpoint)
    assert "lm_head.weight" not in {rule.source for rule in rules}
    assert ignored_tensors(checkpoint, rules) == ("lm_head.weight",)


@pytest.mark.parametrize("row", [0, 40, 96])
def test_a_tied_head_with_values_of_its_own_is_refused(row, monkeypatch):
    monkeypatch.setattr("edgeseek.architectures.unused._TILE_BYTES", 10 * 128)
    head = np.ones((97, 128), np.uint8)
    head[row, 5] = 2
    checkpoint = with_both_tables(np.ones((97, 128), np.uint8), head)
    config = parse_config(checkpoint)
    with pytest.raises(UnsupportedCheckpointError, match="'lm_head.weight'.*tie_word_embeddings to false"):
        tensor_rules(config, checkpoint)


def test_biases_are_asked_for_where_the_config_says_so():
    attention = (*QKV, "self_attn.o_proj")
    mlp = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    checkpoint = huggingface(LLAMA, biases=attention + mlp, attention_bias=True, mlp_bias=True)
    rules = tensor_rules(parse_config(checkpoint), checkpoint)
    assert sum(rule.name.endswith(".bias") for rule in rules) == 14
    checkpoint = huggingface(LLAMA, biases=attention, attention_bias=True)
    assert sum(r.name.endswith(".bias") for r in tensor_rules(parse_config(checkpoint), checkpoint)) == 8


def test_biases_that_the_config_does_not_mention_are_refused():
    checkpoint = huggingface(LLAMA, biases=("self_attn.q_proj",))
    with pytest.raises(UnsupportedCheckpointError, match="model.layers.0.self_attn.q_proj.bias"):
        tensor_rules(parse_config(checkpoint), checkpoint)


def test_head_dim_may_differ_from_hidden_size_by_heads():
    assert parse_config(huggingface(LLAMA, head_dim=32)).head_dim == 32
    assert parse_config(huggingface(LLAMA, head_dim=None)).head_dim == 16
    wide = {
        "llama.attention.key_length": 32,
        "llama.attention.value_length": 32,
        "llama.rope.dimension_count": 32,
    }
    assert parse_config(gguf_file(LLAMA_GGUF, changes=wide)).head_dim == 32


def test_key_value_heads_default_to_the_heads():
    assert parse_config(huggingface(LLAMA, num_key_value_heads=...)).num_kv_heads == 4
    assert (
        parse_config(gguf_file(LLAMA_GGUF, changes={"llama.attention.head_count_kv": ...})).num_kv_heads == 4
    )


def test_mistral_is_llama_with_a_window_on_every_layer():
    config = parse_config(huggingface(LLAMA, architectures=["MistralForCausalLM"], sliding_window=8))
    assert config == replace(TINY, sliding_windows=(8, 8))
    for window, spans in ((None, ()), (..., (4096, 4096))):
        checkpoint = huggingface(LLAMA, architectures=["MistralForCausalLM"], sliding_window=window)
        assert parse_config(checkpoint).sliding_windows == spans


def test_llama_itself_has_no_window():
    assert parse_config(huggingface(LLAMA, sliding_window=8)).sliding_windows == ()


@pytest.mark.parametrize(
    ("generation", "config", "ids"),
    [
        ({"eos_token_id": [5, 6]}, 6, (5, 6)),
        ({"eos_token_id": 7}, [2, 3], (7, 2, 3)),
        ({}, None, ()),
        ({}, 97, ()),
    ],
)
def test_end_ids_are_gathered_from_both_files(generation, config, ids):
    checkpoint = huggingface(LLAMA, generation=generation, eos_token_id=config)
    assert parse_config(checkpoint).eos_token_ids == ids


def test_end_ids_of_a_gguf_include_the_end_of_turn():
    text = {**TEXT, "tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 2}
    assert parse_config(gguf_file(LLAMA_GGUF, text=text)).eos_token_ids == (2, 9)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "'gptq'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel; known are .*LlamaForCausalLM"),
    ],
)
def test_what_changes_the_maths_is_refused_by_name(changes, found):
    with pytest.raises(UnsupportedCheckpointError, match=found):
        parse_config(huggingface(LLAMA, **changes))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"llama.rope.dimension_count": 8}, "rope.dimension_count is 8"),
        ({"llama.expert_count": 8}, "'llama.expert_count' is 8"),
        ({"llama.attention.value_length": 8}, "keys have 16 dimensions and values 8"),
        ({"llama.attention.logit_softcapping": 30.0}, "logit_softcapping"),
        ({"llama.logit_scale": 0.5}, "'llama.logit_scale' is 0.5"),
        ({"llama.attention.causal": False}, "not causal"),
        (
            {"general.architecture": "gemma"},
            "unknown architecture gemma; known are deepseek, .*llama, .*qwen2",
        ),
    ],
)
def test_gguf_metadata_that_changes_the_maths_is_refused_by_name(changes, found):
    with pytest.raises(UnsupportedCheckpointError, match=found):
        parse_config(gguf_file(LLAMA_GGUF, changes=changes))


def test_neutral_gguf_metadata_is_accepted():
    changes = {"llama.expert_count": 0, "llama.logit_scale": 1.0, "llama.attention.causal": True}
    assert parse_config(gguf_file(LLAMA_GGUF, text=TEXT, changes=changes)) == TINY


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"hidden_size": "64"}, "'hidden_size' is '64', not a whole number"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' is 0"),
        ({"num_hidden_layers": True}, "'num_hidden_layers' is True"),
        ({"num_hidden_layers": 1 << 27}, "a whole number from 1 to 10000"),
        ({"vocab_size": ...}, "has no 'vocab_size'"),
        ({"rms_norm_eps": -1}, "'rms_norm_eps' is -1, not a positive number"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
        ({"head_dim": 15}, "15 dimensions"),
        ({"eos_token_id": "x"}, "'eos_token_id' is 'x'"),
        ({"bos_token_id": 97}, "BOS id 97"),
        ({"tie_word_embeddings": "no"}, "'tie_word_embeddings' is 'no'"),
        ({"architectures": []}, "no 'architectures'"),
    ],
)
def test_malformed_values_are_named(changes, found):
    with pytest.raises(CheckpointFormatError, match=found):
        parse_config(huggingface(LLAMA, **changes))


def test_heads_that_differ_by_layer_are_named():
    with pytest.raises(CheckpointFormatError, match="llama.attention.head_count_kv"):
        parse_config(gguf_file(LLAMA_GGUF, changes={"llama.attention.head_count_kv": [2, 1]}))
