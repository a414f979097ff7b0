"""Experts: both spellings of their routing, what is refused, and which tensors they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgeseek.architectures import ModelConfig, MoE, expected_tensors, parse_config, tensor_rules
from edgeseek.architectures.experts import check_moe
from edgeseek.errors import (
    CheckpointFormatError,
    EdgeseekError,
    MissingTensorError,
    UnsupportedCheckpointError,
)
from tests.make_models.experts_gguf import stored_tensors
from tests.make_models.tiny_experts import CASES, TinyExperts, tensors
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, shapes_only

#: config.json of deepseek-ai/deepseek-moe-16b-base, the keys that say what is computed.
MOE_16B = {
    "architectures": ["DeepseekForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 100000,
    "eos_token_id": 100001,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "max_position_embeddings": 4096,
    "model_type": "deepseek",
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 28,
    "num_key_value_heads": 16,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000,
    "scoring_func": "softmax",
    "tie_word_embeddings": False,
    "vocab_size": 102400,
}
GGUF: dict[str, Any] = {
    "general.architecture": "deepseek",
    "deepseek.block_count": 3,
    "deepseek.context_length": 512,
    "deepseek.embedding_length": 80,
    "deepseek.feed_forward_length": 112,
    "deepseek.attention.head_count": 4,
    "deepseek.attention.head_count_kv": 2,
    "deepseek.attention.key_length": 32,
    "deepseek.attention.value_length": 32,
    "deepseek.attention.layer_norm_rms_epsilon": 1e-6,
    "deepseek.rope.dimension_count": 32,
    "deepseek.leading_dense_block_count": 1,
    "deepseek.expert_count": 8,
    "deepseek.expert_used_count": 3,
    "deepseek.expert_shared_count": 2,
    "deepseek.expert_feed_forward_length": 48,
    "deepseek.expert_weights_scale": 1.0,
}


def folder(case: TinyExperts, **changes: Any) -> FakeCheckpoint:
    values = {key: value for key, value in {**case.config(), **changes}.items() if value is not ...}
    return FakeCheckpoint(
        "huggingface", values, shapes_only({name: value.shape for name, value in tensors(case).items()})
    )


def file(case: TinyExperts = CASES["greedy"], **changes: Any) -> FakeCheckpoint:
    stored = shapes_only({name: value.shape for name, value in stored_tensors(case).items()})
    return FakeCheckpoint("gguf", {**GGUF, **{f"deepseek.{k}": v for k, v in changes.items()}}, stored)


def moe_of(checkpoint: FakeCheckpoint) -> MoE:
    moe = parse_config(checkpoint).moe
    assert moe is not None
    return moe


def test_deepseek_moe_16b_is_read_as_published() -> None:
    config = parse_config(FakeCheckpoint("huggingface", MOE_16B, {}))
    assert config.moe == MoE(
        num_experts=64, experts_per_token=6, intermediate_size=1408, shared_size=2816, first_layer=1
    )
    assert (config.intermediate_size, config.head_dim, config.tied_embeddings) == (10944, 128, False)
    assert [config.has_experts(layer) for layer in (0, 1, 27)] == [False, True, True]
    required = [name for name, (_, optional) in expected_tensors(config).items() if not optional]
    assert len(required) == 3 + 28 * 6 + 3 + 27 * (1 + 3 + 64 * 3)
    assert ModelConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("name", "moe"),
    [
        ("greedy", MoE(8, 3, 48, 96, 1)),
        ("greedy-normalized", MoE(8, 3, 48, 96, 1, normalized=True)),
        ("greedy-scaled", MoE(8, 3, 48, 0, 0, 2, scale=1.5)),
        ("group-limited", MoE(12, 3, 48, 96, 1, groups=4, groups_per_token=2, scale=4.0)),
        (
            "corrected-groups",
            MoE(
                *(16, 3, 48, 96, 1, 1, "sigmoid", True, 4, 2, "two_best"),
                normalized=True,
                scale=2.5,
            ),
        ),
    ],
)
def test_each_way_of_routing_is_read(name: str, moe: MoE) -> None:
    assert moe_of(folder(CASES[name])) == moe


def test_a_config_without_experts_has_none() -> None:
    config = parse_config(folder(CASES["greedy"], n_routed_experts=None))
    assert config.moe is None
    assert "moe" not in config.to_json()


def test_one_expert_a_token_is_not_normalized() -> None:
    moe = moe_of(folder(CASES["greedy-normalized"], num_experts_per_tok=1))
    assert (moe.normalized, moe.scale) == (False, 2.0)


@pytest.mark.parametrize(
    ("changes", "error", "found"),
    [
        (
            {"topk_method": "aux_loss"},
            UnsupportedCheckpointError,
            "unknown topk_method 'aux_loss'; known are greedy",
        ),
        (
            {"scoring_func": "tanh"},
            UnsupportedCheckpointError,
            "unknown scoring_func 'tanh'; known are softmax",
        ),
        ({"num_experts_per_tok": 9}, CheckpointFormatError, "9 experts a token are more than the 8"),
        (
            {"n_routed_experts": 1 << 20},
            CheckpointFormatError,
            "'n_routed_experts' is 1048576, not a whole number",
        ),
        ({"moe_intermediate_size": ...}, CheckpointFormatError, "no 'moe_intermediate_size'"),
        ({"moe_layer_freq": 0}, CheckpointFormatError, "'moe_layer_freq' is 0"),
        ({"first_k_dense_replace": -1}, CheckpointFormatError, "'first_k_dense_replace' is -1"),
        (
            {"topk_method": "noaux_tc", "n_group": 3, "topk_group": 1},
            CheckpointFormatError,
            "8 experts do not divide into 3 groups",
        ),
        (
            {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 5},
            CheckpointFormatError,
            "5 groups a token are more than the 4",
        ),
        (
            {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 1},
            CheckpointFormatError,
            "3 experts a token do not fit into 1 groups of 2",
        ),
        (
            {"topk_method": "noaux_tc", "n_group": 8, "topk_group": 8},
            CheckpointFormatError,
            "groups of 1 expert have no two best",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]}},
            UnsupportedCheckpointError,
            "fp8 weights of format 'e5m2'",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}},
            UnsupportedCheckpointError,
            r"in blocks of \[64, 64\]; known are e4m3",
        ),
        (
            {"quantization_config": {"quant_method": "awq"}},
            UnsupportedCheckpointError,
            "quantized with 'awq'",
        ),
    ],
)
def test_what_is_unknown_or_contradicts_itself_is_named(
    changes: dict[str, Any], error: type[EdgeseekError], found: str
) -> None:
    with pytest.raises(error, match=found):
        parse_config(folder(CASES["greedy"], **changes))


def test_gguf_metadata_say_the_same() -> None:
    assert moe_of(file()) == moe_of(folder(CASES["greedy"]))
    assert moe_of(file(expert_weights_norm=True, expert_weights_scale=0.0, expert_gating_func=1)) == replace(
        moe_of(folder(CASES["greedy"])), normalized=True
    )
    assert parse_config(file(expert_count=0)).moe is None


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"expert_gating_func": 3}, r"expert_gating_func is 3; known are 1 \(softmax\), 2 \(sigmoid\)"),
        ({"expert_something": 1}, "'deepseek.expert_something' is 1, which changes the computation"),
    ],
)
def test_unknown_gguf_metadata_are_refused(changes: dict[str, Any], found: str) -> None:
    with pytest.raises(UnsupportedCheckpointError, match=found):
        parse_config(file(**changes))


def test_a_llama_with_experts_is_refused() -> None:
    values = {key.replace("deepseek", "llama"): value for key, value in GGUF.items()}
    with pytest.raises(UnsupportedCheckpointError, match="'llama.expert_count' is 8"):
        parse_config(replace(file(), raw_config={**values, "general.architecture": "llama"}))


@pytest.mark.parametrize("kind", ["huggingface", "gguf"])
def test_every_tensor_has_a_rule_and_a_stack_has_one_for_each_expert(kind: str) -> None:
    checkpoint = folder(CASES["greedy"]) if kind == "huggingface" else file()
    config = parse_config(checkpoint)
    rules = tensor_rules(config, checkpoint)
    assert {rule.source for rule in rules} == set(checkpoint.tensors)
    assert [rule.name for rule in rules] == [
        name for name, (_, optional) in expected_tensors(config).items() if not optional
    ]
    fifth = next(rule for rule in rules if rule.name == "layers.2.mlp.experts.5.down.weight")
    assert fifth.shape == (80, 48)
    if kind == "gguf":
        assert (fifth.source, fifth.source_shape, fifth.first_row) == (
            "blk.2.ffn_down_exps.weight",
            (8, 80, 48),
            400,
        )
    else:
        assert (fifth.source, fifth.first_row) == ("model.layers.2.mlp.experts.5.down_proj.weight", 0)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.2.mlp.experts.7.up_proj.weight",
        "model.layers.1.mlp.gate.weight",
        "model.layers.1.mlp.shared_experts.down_proj.weight",
    ],
)
def test_a_missing_part_of_the_experts_is_named(name: str) -> None:
    whole = folder(CASES["greedy"])
    checkpoint = replace(whole, tensors={key: t for key, t in whole.tensors.items() if key != name})
    with pytest.raises(MissingTensorError, match=f"no tensor '{name}'"):
        tensor_rules(parse_config(checkpoint), checkpoint)


def test_a_bias_for_the_choice_that_the_config_does_not_know_is_refused() -> None:
    whole = folder(CASES["greedy"])
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    checkpoint = replace(whole, tensors={**whole.tensors, **shapes_only({name: (8,)})})
    with pytest.raises(UnsupportedCheckpointError, match=name):
        tensor_rules(parse_config(checkpoint), checkpoint)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_experts": 0},
        {"num_experts": 8.0},
        {"experts_per_token": 9},
        {"shared_size": -1},
        {"scoring": "tanh"},
        {"group_score": "worst"},
        {"corrected": 1},
        {"scale": 0.0},
        {"scale": "1"},
        {"groups": 3},
        {"num_experts": 1 << 13},
    ],
)
def test_a_package_with_impossible_experts_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="experts|moe"):
        check_moe(replace(MoE(8, 3, 48), **changes))
