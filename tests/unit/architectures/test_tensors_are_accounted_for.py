from __future__ import annotations

from dataclasses import replace

import pytest

from edgeseek.architectures import ModelConfig, expected_tensors, ignored_tensors, parse_config, tensor_rules
from edgeseek.errors import MissingTensorError, UnsupportedCheckpointError
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, FakeTensor
from tests.unit.architectures.tiny_models import LLAMA, LLAMA_GGUF, gguf_file, huggingface


def with_tensor(checkpoint: FakeCheckpoint, name: str, shape: tuple[int, ...]) -> FakeCheckpoint:
    return replace(checkpoint, tensors={**checkpoint.tensors, name: FakeTensor(name, "F32", shape)})


def without(checkpoint: FakeCheckpoint, name: str) -> FakeCheckpoint:
    return replace(checkpoint, tensors={key: t for key, t in checkpoint.tensors.items() if key != name})


def rules_of(checkpoint: FakeCheckpoint) -> list[str]:
    return [rule.source for rule in tensor_rules(parse_config(checkpoint), checkpoint)]


def test_a_missing_tensor_is_named():
    with pytest.raises(MissingTensorError, match="'model.layers.1.mlp.up_proj.weight'.*download it again"):
        rules_of(without(huggingface(LLAMA), "model.layers.1.mlp.up_proj.weight"))


def test_a_missing_head_of_an_untied_model_is_named():
    with pytest.raises(MissingTensorError, match="lm_head.weight"):
        rules_of(huggingface(LLAMA, tied=True))


def test_a_gguf_that_is_a_vocabulary_only_says_so():
    with pytest.raises(MissingTensorError, match="token_embd.weight.*vocabulary only"):
        parse_config(FakeCheckpoint("gguf", LLAMA_GGUF, {}))


def test_another_shape_is_named_with_both():
    checkpoint = with_tensor(huggingface(LLAMA), "model.layers.0.mlp.down_proj.weight", (96, 64))
    with pytest.raises(MissingTensorError, match=r"has shape \[96, 64\].*asks for \[64, 96\]"):
        rules_of(checkpoint)


def test_unknown_tensors_are_named_and_counted():
    checkpoint = gguf_file(LLAMA_GGUF)
    for index in range(7):
        checkpoint = with_tensor(checkpoint, f"blk.0.extra_{index}.weight", (4,))
    with pytest.raises(UnsupportedCheckpointError, match="blk.0.extra_0.weight.*extra_4.weight and 2 more"):
        rules_of(checkpoint)


def test_stored_inverse_frequencies_are_ignored():
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    checkpoint = with_tensor(huggingface(LLAMA), name, (8,))
    rules = tensor_rules(parse_config(checkpoint), checkpoint)
    assert name not in {rule.source for rule in rules}
    assert ignored_tensors(checkpoint, rules) == (name,)


def test_a_config_of_an_unknown_architecture_is_refused():
    config = ModelConfig("mamba", 8, 8, 8, 1, 1, 1, 8, 8, 1e-5)
    with pytest.raises(UnsupportedCheckpointError, match="'mamba'; known are deepseek, .*llama, .*qwen2"):
        expected_tensors(config)
