from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgeseek.architectures import LatentAttention, ModelConfig, expected_tensors, parse_config, tensor_rules
from edgeseek.architectures.rope import softmax_scale
from edgeseek.errors import (
    CheckpointFormatError,
    MissingTensorError,
    PackageFormatError,
    UnsupportedCheckpointError,
)
from edgeseek.package.manifest import Manifest, parse_manifest
from tests.make_models.latent_gguf import gguf_metadata, gguf_tensors
from tests.make_models.tiny import CASES, TinyModel, tensors
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, shapes_only

LATENT = [name for name, case in CASES.items() if case.latent is not None]
V2 = [name for name in LATENT if name.startswith("deepseek-v2")]
#: What the published config.json of DeepSeek-V2-Lite says of its attention.
V2_LITE: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 102400,
    "max_position_embeddings": 163840,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "rope_theta": 10000,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
}


def folder(model: TinyModel, **changes: Any) -> FakeCheckpoint:
    shapes = {name: value.shape for name, value in tensors(model).items()}
    return FakeCheckpoint("huggingface", {**model.config(), **changes}, shapes_only(shapes))


def gguf(model: TinyModel, *, split: bool, **changes: Any) -> FakeCheckpoint:
    metadata = {**gguf_metadata(model, split=split), **changes}
    shapes = {name: value.shape for name, value in gguf_tensors(model, split=split).items()}
    return FakeCheckpoint("gguf", metadata, shapes_only(shapes))


def test_v2_lite_is_read_with_its_scale_and_its_cache():
    config = parse_config(FakeCheckpoint("huggingface", V2_LITE, {}))
    assert config.latent == LatentAttention(rank=512, plain_dim=128, rotated_dim=64, value_dim=128)
    assert (config.head_dim, config.rotary_dim, config.attention_width) == (192, 64, 2048)
    assert config.rope.attention_factor == 1.0
    assert softmax_scale(config.rope, config.head_dim) == pytest.approx(0.1147214, abs=5e-8)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", V2)
def test_both_kinds_of_gguf_give_the_config_of_the_folder(name, split):
    model = replace(CASES[name], attention_bias=False)
    want = parse_config(folder(model, bos_token_id=None, eos_token_id=None))
    assert want.latent is not None
    assert parse_config(gguf(model, split=split)) == want


@pytest.mark.parametrize("name", LATENT)
def test_every_tensor_has_a_rule_and_a_place_in_the_package(name):
    checkpoint = folder(CASES[name])
    config = parse_config(checkpoint)
    rules = tensor_rules(config, checkpoint)
    expected = expected_tensors(config)
    assert {rule.name: rule.shape for rule in rules} == {
        key: shape
        for key, (shape, optional) in expected.items()
        if not optional or CASES[name].attention_bias
    }
    assert {rule.source for rule in rules} == set(checkpoint.tensors)


@pytest.mark.parametrize("split", [False, True])
def test_rotated_rows_of_queries_and_of_the_shared_key_are_restored(split):
    model = replace(CASES["deepseek-v2-low-rank-queries"], attention_bias=False)
    for checkpoint in (folder(model), gguf(model, split=split)):
        restored = {
            rule.name: (rule.unpermute_heads, rule.unpermute_rows)
            for rule in tensor_rules(parse_config(checkpoint), checkpoint)
            if rule.unpermute_heads
        }
        assert restored == {
            f"layers.{layer}.attn.{part}.weight": (heads, 32)
            for layer in (0, 1)
            for part, heads in (("q_b", 3), ("kv_a", 1))
        }


def test_v3_may_store_rotated_rows_in_order():
    checkpoint = folder(CASES["deepseek-v3-dense"], rope_interleave=False)
    assert not any(rule.unpermute_heads for rule in tensor_rules(parse_config(checkpoint), checkpoint))


def test_a_missing_bias_that_the_config_announces_is_named():
    model = CASES["deepseek-v2-low-rank-queries"]
    checkpoint = folder(replace(model, attention_bias=False), attention_bias=True)
    with pytest.raises(MissingTensorError, match="q_a_proj.bias"):
        tensor_rules(parse_config(checkpoint), checkpoint)


def test_a_bias_that_the_config_does_not_announce_is_named():
    checkpoint = folder(CASES["deepseek-v2-low-rank-queries"], attention_bias=False)
    with pytest.raises(UnsupportedCheckpointError, match="kv_a_proj_with_mqa.bias"):
        tensor_rules(parse_config(checkpoint), checkpoint)


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("kv_lora_rank", None, "kv_lora_rank"),
        ("qk_rope_head_dim", 15, "rotated in pairs"),
        ("v_head_dim", "wide", "v_head_dim"),
        ("q_lora_rank", -4, "q_lora_rank"),
    ],
)
def test_bad_sizes_in_config_json_are_named(key, value, found):
    with pytest.raises(CheckpointFormatError, match=found):
        parse_config(folder(CASES["deepseek-v2-plain-queries"], **{key: value}))


def test_a_gguf_whose_keys_are_all_rotated_is_refused():
    checkpoint = gguf(
        CASES["deepseek-v2-plain-queries"], split=False, **{"deepseek2.attention.key_length": 16}
    )
    with pytest.raises(CheckpointFormatError, match="keys of 16 dimensions cannot have 16"):
        parse_config(checkpoint)


def test_a_packages_config_is_read_back_and_held_to_its_types():
    config = parse_config(folder(CASES["deepseek-v2-yarn"]))
    assert config.latent is not None
    written = config.to_json()
    assert ModelConfig.from_json(written) == config
    wrong: list[tuple[str, Any]] = [("rank", 0), ("plain_dim", 1.5), ("query_rank", -1), ("rms_eps", "small")]
    for key, value in wrong:
        bad = config.with_changes(latent=replace(config.latent, **{key: value}))
        with pytest.raises(PackageFormatError, match=f"latent.{key} is"):
            parse_manifest(Manifest("x", bad, {}, {}, "0").to_bytes(), "here")
