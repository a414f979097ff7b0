"""Options are frozen, checked one by one, and taken from a generation_config.json as users expect."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from edgeseek.engine import SamplingParams
from edgeseek.errors import UsageError


def test_without_arguments_it_is_greedy_until_the_context_is_full() -> None:
    params = SamplingParams()
    assert (params.temperature, params.max_tokens, params.stop, params.logprobs) == (0.0, None, (), None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", "1"),
        ("temperature", True),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("presence_penalty", math.inf),
        ("frequency_penalty", math.nan),
        ("seed", -1),
        ("seed", 2**64),
        ("max_tokens", 0),
        ("stop", [""]),
        ("stop", [1]),
        ("stop", None),
        ("stop_token_ids", 2),
        ("stop_token_ids", "ab"),
        ("logit_bias", [3]),
        ("stop_token_ids", [-1]),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: math.inf}),
        ("logit_bias", {1: math.nan}),
        ("logprobs", -1),
    ],
)
def test_a_bad_value_is_refused_and_its_field_named(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=field):
        SamplingParams(**{field: value})


def test_it_cannot_be_changed_but_copied_with_changes() -> None:
    params = SamplingParams(stop=["a"], logit_bias={3: -math.inf})
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.temperature = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        params.logit_bias[3] = 0.0  # type: ignore[index]
    copy = params.with_changes(temperature=0.5)
    assert (copy.temperature, copy.stop, dict(copy.logit_bias)) == (0.5, ("a",), {3: -math.inf})
    with pytest.raises(TypeError):
        params.with_changes(temprature=0.5)


def test_one_stop_text_need_not_be_in_a_list() -> None:
    assert SamplingParams(stop="END").stop == ("END",)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"do_sample": False, "temperature": 0.7, "top_p": 0.9}, {}),
        ({"do_sample": True}, {"temperature": 1.0}),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20},
            {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
        ),
        ({"temperature": 0.6, "top_k": None}, {"temperature": 0.6}),
        ({"temperature": 0.6, "top_k": -1}, {"temperature": 0.6}),
        ({"top_p": 0.9}, {}),
        ({"repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({"eos_token_id": [1, 2], "max_length": 2048, "transformers_version": "4.0"}, {}),
    ],
)
def test_defaults_from_a_generation_config(config: dict[str, Any], expected: dict[str, Any]) -> None:
    assert SamplingParams.from_generation_config(config) == SamplingParams(**expected)
