from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from edgeseek.architectures import ModelConfig, Rope, parse_config, tensor_rules
from edgeseek.architectures.fields import Fields
from edgeseek.architectures.rope import softmax_scale
from edgeseek.architectures.rope_gguf import gguf_rope
from edgeseek.errors import CheckpointFormatError, MissingTensorError, UnsupportedCheckpointError
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, FakeTensor
from tests.unit.architectures.tiny_models import LLAMA, LLAMA_GGUF, gguf_file, huggingface

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
V2 = {
    "type": "yarn",
    "factor": 40,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
    "beta_fast": 32,
    "beta_slow": 1,
    "original_max_position_embeddings": 4096,
}
R1_0528_QWEN3 = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
    "attn_factor": 0.8782488562869419,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
    "original_max_position_embeddings": 32,
}


def folder_rope(**changes: Any) -> Rope:
    return parse_config(huggingface(LLAMA, **changes)).rope


def gguf_with(tensors: Mapping[str, FakeTensor], **changes: Any) -> FakeCheckpoint:
    """The tiny Llama as a GGUF with `tensors` added; "__" in a key stands for a dot."""
    keys = {f"llama.rope.{key.replace('__', '.')}": value for key, value in changes.items()}
    checkpoint = gguf_file(LLAMA_GGUF, changes=keys)
    return FakeCheckpoint("gguf", checkpoint.raw_config, {**checkpoint.tensors, **tensors})


def factors(name: str, values: list[float]) -> dict[str, FakeTensor]:
    data = np.array(values, dtype="<f4").view(np.uint8).reshape(1, -1)
    return {name: FakeTensor(name, "F32", (len(values),), data)}


@pytest.mark.parametrize(
    ("changes", "rope"),
    [
        ({}, Rope(10000.0)),
        ({"rope_theta": 500000}, Rope(500000.0)),
        ({"rope_theta": 5e5, "rope_scaling": None}, Rope(5e5)),
        ({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}, Rope(5e5, "linear", 2.0)),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4}}, Rope(1e4, "linear", 4.0)),
        ({"rope_scaling": {"rope_type": "default"}}, Rope(1e4)),
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, Rope(1e6)),
        (
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0}},
            Rope(1e6, "linear", 8.0),
        ),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, Rope(1e6)),
        (
            {"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2}},
            Rope(1e4, "linear", 2),
        ),
        # As in transformers, the older key goes first.
        (
            {
                "rope_theta": 5e5,
                "rope_scaling": {"type": "linear", "factor": 4},
                "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
            },
            Rope(5e5, "linear", 4),
        ),
    ],
)
def test_both_generations_of_keys_are_read(changes, rope):
    assert folder_rope(**changes) == rope


def test_llama3_scaling_is_read_from_either_key():
    wanted = Rope(5e5, "llama3", 8.0, original_context=8192)
    assert folder_rope(rope_theta=5e5, rope_scaling=LLAMA3) == wanted
    assert folder_rope(rope_parameters={**LLAMA3, "rope_theta": 5e5}) == wanted


def test_dynamic_scaling_starts_from_the_stated_context_and_extends_it():
    config = parse_config(huggingface(LLAMA, rope_scaling={"type": "dynamic", "factor": 4.0}))
    assert config.rope == Rope(1e4, "dynamic", 4.0, original_context=128)
    assert config.max_context == 512


def test_yarn_of_deepseek_v2_leaves_cosines_alone():
    rope = folder_rope(rope_scaling=V2)
    assert rope == Rope(1e4, "yarn", 40.0, original_context=4096, mscale_all_dim=0.707, attention_factor=1.0)
    assert softmax_scale(rope, 192) == pytest.approx(0.1147214, abs=5e-8)


def test_two_mscales_that_differ_enlarge_cosines_by_their_quotient():
    rope = folder_rope(rope_scaling={**V2, "mscale": 1.0})
    assert rope.attention_factor == pytest.approx(1.3688879454 / 1.2608037774, rel=1e-9)
    # One of them alone counts for the softmax only.
    alone = folder_rope(rope_scaling={**V2, "mscale": 0})
    assert alone.attention_factor == pytest.approx(1.3688879454, rel=1e-10)
    assert softmax_scale(alone, 192) == softmax_scale(rope, 192)


def test_yarn_of_deepseek_v3_scales_the_softmax_more():
    rope = folder_rope(rope_scaling={**V2, "mscale": 1.0, "mscale_all_dim": 1.0})
    assert rope.attention_factor == 1.0
    assert softmax_scale(rope, 192) == pytest.approx(1.3688879454**2 / 192**0.5, rel=1e-9)


def test_yarn_without_mscale_enlarges_cosines():
    scaling = {key: value for key, value in R1_0528_QWEN3.items() if key != "attn_factor"}
    rope = folder_rope(rope_scaling=scaling)
    assert rope.attention_factor == pytest.approx(1.1386294361, abs=1e-10)
    assert folder_rope(rope_scaling={**scaling, "attention_factor": 1.25}).attention_factor == 1.25


def test_attn_factor_of_r1_0528_qwen3_undoes_the_enlargement():
    config = parse_config(huggingface(LLAMA, rope_scaling=R1_0528_QWEN3, max_position_embeddings=32768))
    assert config.rope.attention_factor == pytest.approx(1.0, abs=1e-12)
    assert config.max_context == 131072


def test_yarn_takes_what_is_absent_from_the_top_level():
    scaling = {"rope_type": "yarn", "factor": None}
    rope = folder_rope(rope_scaling=scaling, original_max_position_embeddings=32)
    assert (rope.factor, rope.original_context) == (4.0, 32)
    assert folder_rope(rope_scaling={"rope_type": "yarn", "factor": 2.0}).original_context == 128


def test_longrope_reads_both_lists_and_infers_the_rest():
    rope = folder_rope(rope_scaling=LONGROPE)
    assert (rope.kind, rope.factor, rope.original_context) == ("longrope", 4.0, 32)
    assert (rope.factors, rope.long_factors) == ((1.0,) * 8, (2.0,) * 8)
    assert rope.attention_factor == pytest.approx((1 + np.log(4) / np.log(32)) ** 0.5)


@pytest.mark.parametrize("kind", ["su", "mrope", "proportional", "ntk"])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_other_scalings_of_a_folder_are_refused_by_name(key, kind):
    changes: dict[str, Any] = {key: {"rope_type": kind, "factor": 2.0}}
    with pytest.raises(
        UnsupportedCheckpointError,
        match=f"'{kind}'.*known are default, linear, dynamic, llama3, yarn, longrope",
    ):
        folder_rope(**changes)


def test_an_unknown_key_of_a_scaling_is_refused_by_name():
    with pytest.raises(UnsupportedCheckpointError, match="rope_scaling.*'mrope_section'"):
        folder_rope(rope_scaling={"type": "linear", "factor": 2.0, "mrope_section": [16, 24, 24]})


def test_parameters_by_layer_type_are_refused():
    nested = {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}}
    with pytest.raises(UnsupportedCheckpointError, match="full_attention, sliding_attention"):
        folder_rope(rope_parameters=nested)


@pytest.mark.parametrize("factor", [None, 0, -1, "2", float("nan")])
@pytest.mark.parametrize("kind", ["linear", "dynamic"])
def test_a_scaling_without_a_usable_factor_is_malformed(kind, factor):
    with pytest.raises(CheckpointFormatError, match="factor"):
        folder_rope(rope_scaling={"type": kind, "factor": factor})


@pytest.mark.parametrize(
    ("scaling", "named"),
    [
        ({**LLAMA3, "high_freq_factor": 1.0}, "low_freq_factor"),
        ({key: value for key, value in LLAMA3.items() if key != "low_freq_factor"}, "low_freq_factor"),
        ({**LONGROPE, "short_factor": [1.0] * 7}, "factors has 7 entries, and 8"),
        ({**LONGROPE, "long_factor": [1.0] * 7 + [0.0]}, "long_factor"),
        ({**LONGROPE, "long_factor": 2.0}, "long_factor.*a list of positive numbers"),
        ({**LONGROPE, "original_max_position_embeddings": 1}, "original_context"),
        ({"rope_type": "dynamic", "factor": 0.5}, "dynamic scaling by 0.5"),
        ({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1.0}, "theta is 1.0"),
    ],
)
def test_impossible_values_are_named(scaling, named):
    with pytest.raises(CheckpointFormatError, match=named):
        folder_rope(rope_scaling=scaling)


@pytest.mark.parametrize(
    ("changes", "rope"),
    [
        ({"llama.rope.freq_base": 5e5}, Rope(5e5)),
        ({"llama.rope.scaling.type": "none"}, Rope(1e4)),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, Rope(1e4)),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, Rope(1e4, "linear", 4.0)),
        ({"llama.rope.scaling.factor": 4.0}, Rope(1e4, "linear", 4.0)),
        ({"llama.rope.scale_linear": 2.0}, Rope(1e4, "linear", 2.0)),
        ({"llama.rope.scale_linear": 1.0}, Rope(1e4)),
    ],
)
def test_gguf_keys_are_read(changes, rope):
    assert parse_config(gguf_file(LLAMA_GGUF, changes=changes)).rope == rope


def test_yarn_of_a_gguf_equals_that_of_a_folder():
    keys = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 32768,
    }
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config: ModelConfig = parse_config(gguf_file(LLAMA_GGUF, changes=keys))
    assert config.rope == folder_rope(rope_scaling=scaling)
    assert config.max_context == 131072
    keys["llama.rope.scaling.yarn_attn_factor"] = 0.8782488562869419
    assert parse_config(gguf_file(LLAMA_GGUF, changes=keys)).rope == folder_rope(rope_scaling=R1_0528_QWEN3)


def test_the_log_multiplier_of_deepseek2_is_a_tenth_of_mscale_all_dim():
    keys = {
        "context_length": 163840,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_log_multiplier": float(np.float32(0.0707)),
    }
    rope = gguf_rope(Fields(keys, "a GGUF"), {}, 64, log_multiplier=True)
    assert rope == folder_rope(rope_scaling=V2)


def test_longrope_of_a_gguf_reads_its_tensors():
    tensors = {
        **factors("rope_factors_short.weight", [1.0] * 8),
        **factors("rope_factors_long.weight", [2.0] * 8),
    }
    keys: dict[str, Any] = {
        "scaling__type": "longrope",
        "scaling__original_context_length": 32,
        "scaling__attn_factor": 1.25,
    }
    checkpoint = gguf_with(tensors, **keys)
    rope = parse_config(checkpoint).rope
    assert (rope.kind, rope.factor, rope.original_context, rope.attention_factor) == (
        "longrope",
        4.0,
        32,
        1.25,
    )
    assert (rope.factors, rope.long_factors) == ((1.0,) * 8, (2.0,) * 8)
    assert tensor_rules(parse_config(checkpoint), checkpoint)
    with pytest.raises(MissingTensorError, match="rope_factors_short"):
        parse_config(gguf_with({}, **keys))


def test_other_scalings_of_a_gguf_are_refused_by_name():
    with pytest.raises(UnsupportedCheckpointError, match="'dynamic'.*llama.rope.scaling.type"):
        parse_config(gguf_file(LLAMA_GGUF, changes={"llama.rope.scaling.type": "dynamic"}))
    with pytest.raises(UnsupportedCheckpointError, match="llama.rope.scaling.alpha"):
        parse_config(gguf_file(LLAMA_GGUF, changes={"llama.rope.scaling.alpha": 1000.0}))


def test_frequency_factors_of_a_gguf_are_read_and_count_as_used():
    values = [1.0, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 8.0]
    checkpoint = gguf_with(factors("rope_freqs.weight", values), freq_base=5e5)
    config = parse_config(checkpoint)
    assert config.rope == Rope(5e5, "factors", factors=tuple(values))
    assert "rope_freqs.weight" not in {rule.source for rule in tensor_rules(config, checkpoint)}


@pytest.mark.parametrize(
    ("values", "keys", "error", "named"),
    [
        ([1.0] * 7, {}, CheckpointFormatError, r"F32 \[7\].*F32 \[8\]"),
        ([1.0] * 7 + [0.0], {}, CheckpointFormatError, "positive"),
        ([1.0] * 7 + [float("nan")], {}, CheckpointFormatError, "positive"),
        ([1.0] * 8, {"scaling__factor": 4.0}, UnsupportedCheckpointError, "rope_freqs.weight.*'linear'"),
    ],
)
def test_unusable_frequency_factors_are_named(values, keys, error, named):
    with pytest.raises(error, match=named):
        parse_config(gguf_with(factors("rope_freqs.weight", values), **keys))


def test_an_attention_factor_that_no_scaling_uses_is_refused():
    with pytest.raises(UnsupportedCheckpointError, match="attn_factor is 1.5"):
        parse_config(gguf_file(LLAMA_GGUF, changes={"llama.rope.scaling.attn_factor": 1.5}))


@pytest.mark.parametrize("scaling", [LLAMA3, V2, LONGROPE, {"type": "dynamic", "factor": 2.0}])
def test_every_scaling_survives_the_manifest(scaling):
    config = parse_config(huggingface(LLAMA, rope_scaling=scaling))
    assert ModelConfig.from_json(config.to_json()) == config


def test_a_manifest_names_only_what_a_scaling_needs():
    # Packages from before the other scalings must keep their digest.
    assert parse_config(huggingface(LLAMA)).to_json()["rope"] == {
        "theta": 10000.0,
        "kind": "default",
        "factor": 1.0,
    }
