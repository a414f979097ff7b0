"""The configs of the catalogue's models give the shapes, scalings and sizes that were published."""

from __future__ import annotations

import math

import pytest

from edgeseek.architectures import ModelConfig, Rope, expected_tensors, parse_config
from edgeseek.architectures.rope import softmax_scale
from edgeseek.checkpoints.catalogue import HubSource, entries
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint
from tests.unit.architectures.published_configs import PUBLISHED


def config_of(repo: str) -> ModelConfig:
    return parse_config(FakeCheckpoint("huggingface", PUBLISHED[repo][0], {}))


def test_every_published_config_is_one_of_the_catalogue() -> None:
    repos = {entry.source.repo for entry in entries() if isinstance(entry.source, HubSource)}
    assert set(PUBLISHED) <= repos


@pytest.mark.parametrize("repo", PUBLISHED)
def test_the_tensors_add_up_to_the_published_parameters(repo: str) -> None:
    config = config_of(repo)
    shapes = [shape for shape, optional in expected_tensors(config).values() if not optional]
    assert sum(math.prod(shape) for shape in shapes) == PUBLISHED[repo][1]


@pytest.mark.parametrize(
    ("repo", "rope", "context"),
    [
        ("deepseek-ai/deepseek-llm-7b-chat", Rope(1e4), 4096),
        ("deepseek-ai/deepseek-coder-1.3b-base", Rope(1e5, "linear", 4.0), 16384),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", Rope(1e4), 131072),
        (
            "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
            Rope(5e5, "llama3", 8.0, original_context=8192),
            131072,
        ),
    ],
)
def test_scalings_and_contexts(repo: str, rope: Rope, context: int) -> None:
    config = config_of(repo)
    assert (config.rope, config.max_context) == (rope, context)
    assert config.sliding_windows == ()


def test_r1_0528_qwen3_has_yarn_that_leaves_cosines_alone() -> None:
    config = config_of("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B")
    assert (config.rope.kind, config.rope.factor, config.rope.original_context) == ("yarn", 4.0, 32768)
    assert config.rope.attention_factor == pytest.approx(1.0, abs=1e-12)
    assert (config.head_dim, config.max_context) == (128, 131072)


def test_v2_lite_has_the_published_softmax_scale_and_context() -> None:
    config = config_of("deepseek-ai/DeepSeek-V2-Lite-Chat")
    assert (config.head_dim, config.rotary_dim, config.max_context) == (192, 64, 163840)
    assert config.rope.attention_factor == 1.0
    assert softmax_scale(config.rope, config.head_dim) == pytest.approx(0.1147214, abs=5e-8)
