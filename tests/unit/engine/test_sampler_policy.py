"""What a row asks the backend for, and the reference chain itself on hand-made cases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgeseek.engine.params import SamplingParams
from edgeseek.engine.sampler import SamplingState, TokenTally
from tests.unit.engine.reference_sampler import random_bits, sample


def state(prompt: tuple[int, ...] = (), **options: Any) -> SamplingState:
    return SamplingState(SamplingParams(**options), prompt)


def test_a_tally_counts_distinct_ids_beyond_its_first_size() -> None:
    tally = TokenTally([*range(200), 7, 7])
    assert tally.ids.tolist() == list(range(200))
    assert tally.counts[7] == 3
    assert tally.counts.sum() == 202


def test_repetition_sees_prompt_and_output_but_the_other_penalties_the_output_only() -> None:
    s = state((5, 5, 6), repetition_penalty=1.5, frequency_penalty=0.5)
    for token in (9, 5, 9):
        s.accept(token)
    row = s.row(6)
    assert row.seen_ids.tolist() == [5, 6, 9]
    assert row.output_ids.tolist() == [9, 5]
    assert row.output_counts.tolist() == [2, 1]
    assert (row.position, row.repetition_penalty, row.frequency_penalty) == (6, 1.5, 0.5)


def test_without_penalties_nothing_is_counted() -> None:
    s = state((1, 2, 3))
    s.accept(4)
    row = s.row(4)
    assert len(row.seen_ids) == len(row.output_ids) == len(row.output_counts) == 0


def test_bias_and_logprobs_reach_the_row() -> None:
    row = state(logit_bias={4: 2.5, 9: -math.inf}, logprobs=3).row(0)
    assert row.bias_ids.tolist() == [4, 9]
    assert row.bias_values.tolist() == [2.5, -math.inf]
    assert row.top_logprobs == 3
    assert state().row(0).top_logprobs == -1


def test_a_seed_is_kept_and_without_one_each_request_draws_its_own() -> None:
    assert state(seed=2**64 - 1).row(0).seed == 2**64 - 1
    seeds = {state().seed for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_random_bits_are_the_known_answers_of_philox() -> None:
    assert random_bits(0, 0) == 0xE169C58D6627E8D5


def test_the_chain_applies_penalties_before_bias_before_temperature() -> None:
    # 4 / 2 = 2, then 2 + 3 = 5 beats 4.5; with the bias first it would be 7 / 2 = 3.5.
    row = state((0,), repetition_penalty=2.0, logit_bias={0: 3.0}).row(0)
    assert sample(np.array([4.0, 4.5], np.float32), row).token == 0


@pytest.mark.parametrize(
    ("options", "allowed"), [({"top_k": 2}, {0, 1}), ({"top_p": 0.6}, {0, 1}), ({"min_p": 0.4}, {0, 1})]
)
def test_each_cut_leaves_only_the_most_likely(options: dict[str, Any], allowed: set[int]) -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    drawn = {sample(logits, state(temperature=1.0, seed=s, **options).row(3)).token for s in range(200)}
    assert drawn == allowed
