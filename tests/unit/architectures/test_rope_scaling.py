from __future__ import annotations

from typing import Any

import pytest

from edgeseek.architectures import Rope, parse_config
from edgeseek.errors import CheckpointFormatError, UnsupportedCheckpointError
from tests.unit.architectures.fake_checkpoint import FakeTensor
from tests.unit.architectures.tiny_models import LLAMA, LLAMA_GGUF, gguf_file, huggingface


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
    ],
)
def test_both_generations_of_keys_are_read(changes, rope):
    assert parse_config(huggingface(LLAMA, **changes)).rope == rope


@pytest.mark.parametrize("kind", ["llama3", "yarn", "dynamic", "longrope", "su", "mrope"])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_other_scalings_of_a_folder_are_refused_by_name(key, kind):
    changes: dict[str, Any] = {key: {"rope_type": kind, "factor": 2.0}}
    with pytest.raises(UnsupportedCheckpointError, match=f"'{kind}'.*known are default, linear"):
        parse_config(huggingface(LLAMA, **changes))


def test_parameters_by_layer_type_are_refused():
    nested = {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}}
    with pytest.raises(UnsupportedCheckpointError, match="full_attention, sliding_attention"):
        parse_config(huggingface(LLAMA, rope_parameters=nested))


@pytest.mark.parametrize("factor", [None, 0, -1, "2", float("nan")])
def test_a_linear_scaling_without_a_usable_factor_is_malformed(factor):
    with pytest.raises(CheckpointFormatError, match="factor"):
        parse_config(huggingface(LLAMA, rope_scaling={"type": "linear", "factor": factor}))


@pytest.mark.parametrize(
    ("changes", "rope"),
    [
        ({"llama.rope.freq_base": 5e5}, Rope(5e5)),
        ({"llama.rope.scaling.type": "none"}, Rope(1e4)),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, Rope(1e4, "linear", 4.0)),
        ({"llama.rope.scale_linear": 2.0}, Rope(1e4, "linear", 2.0)),
        ({"llama.rope.scale_linear": 1.0}, Rope(1e4)),
    ],
)
def test_gguf_keys_are_read(changes, rope):
    assert parse_config(gguf_file(LLAMA_GGUF, changes=changes)).rope == rope


def test_other_scalings_of_a_gguf_are_refused_by_name():
    with pytest.raises(UnsupportedCheckpointError, match="'yarn'.*llama.rope.scaling.type"):
        parse_config(gguf_file(LLAMA_GGUF, changes={"llama.rope.scaling.type": "yarn"}))


def test_frequency_factors_in_a_gguf_are_refused_as_llama3():
    checkpoint = gguf_file(LLAMA_GGUF)
    factors = FakeTensor("rope_freqs.weight", "F32", (8,))
    tensors = {**checkpoint.tensors, "rope_freqs.weight": factors}
    with pytest.raises(UnsupportedCheckpointError, match="'llama3'.*rope_freqs.weight"):
        parse_config(type(checkpoint)("gguf", checkpoint.raw_config, tensors))
