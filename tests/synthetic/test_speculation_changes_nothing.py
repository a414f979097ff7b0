"""Proposed tokens change how fast an answer comes, never the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeseek.engine import Completion, Engine, SamplingParams
from edgeseek.runtime.native import NativeBackend
from tests.make_models.tiny import CASES
from tests.synthetic.models import backend_of, package_of
from tests.unit.engine.fake_backend import FakeTokenizer

#: A prompt that repeats itself, as edited code does; the tiny model falls into repetition too.
PROMPT = [(7 * i) % 23 + 5 for i in range(40)] * 3

PARAMS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=80, ignore_eos=True),
    "sampled": SamplingParams(temperature=0.7, top_k=3, seed=3, max_tokens=80, ignore_eos=True),
    "penalties": SamplingParams(
        temperature=0.5, repetition_penalty=1.1, frequency_penalty=0.1, seed=5, max_tokens=60, ignore_eos=True
    ),
    "logprobs": SamplingParams(temperature=0.0, logprobs=3, max_tokens=40, ignore_eos=True),
    "one token": SamplingParams(temperature=0.0, max_tokens=1),
    "ends by itself": SamplingParams(temperature=0.9, seed=1, max_tokens=200),
}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeBackend]:
    package = package_of(CASES["llama-tied"], tmp_path_factory.mktemp("speculation"), "q8")
    yield backend_of(package, 1600)
    package.close()


def answers(backend: NativeBackend, asked: list[SamplingParams], *, speculate: bool) -> list[Completion]:
    with Engine(backend, FakeTokenizer(), speculate=speculate, retain=False, check_invariants=True) as engine:
        running = [engine.submit(PROMPT[i:], params) for i, params in enumerate(asked)]
        return [generation.join() for generation in running]


def told(completion: Completion) -> tuple[object, ...]:
    return completion.token_ids, completion.text, completion.logprobs, completion.finish_reason


@pytest.mark.parametrize("name", PARAMS)
def test_answer_is_the_same_with_and_without(backend: NativeBackend, name: str) -> None:
    plain = answers(backend, [PARAMS[name]], speculate=False)
    fast = answers(backend, [PARAMS[name]], speculate=True)
    assert [told(c) for c in fast] == [told(c) for c in plain]
    assert plain[0].timings.drafted_tokens == 0


def test_repetition_is_guessed_and_saves_steps(backend: NativeBackend) -> None:
    before = backend.counters()["steps"]
    (fast,) = answers(backend, [PARAMS["greedy"]], speculate=True)
    assert fast.timings.accepted_tokens > 10
    assert backend.counters()["steps"] - before == 80 - fast.timings.accepted_tokens


def test_many_sequences_together_are_the_same(backend: NativeBackend) -> None:
    asked = list(PARAMS.values())
    plain = answers(backend, asked, speculate=False)
    fast = answers(backend, asked, speculate=True)
    assert [told(c) for c in fast] == [told(c) for c in plain]
    assert sum(c.timings.accepted_tokens for c in fast) > 0


def test_a_pool_too_small_for_all_preempts_and_answers_the_same(tmp_path: Path) -> None:
    package = package_of(CASES["llama-tied"], tmp_path, "q8")
    small, large = backend_of(package, 300), backend_of(package, 1600)
    asked = [PARAMS["greedy"], PARAMS["sampled"], PARAMS["penalties"]]
    plain, fast = answers(large, asked, speculate=False), answers(small, asked, speculate=True)
    package.close()
    assert [told(c) for c in fast] == [told(c) for c in plain]
    assert sum(c.timings.preemptions for c in fast) > 0


def test_what_is_retained_after_rejected_proposals_is_right(backend: NativeBackend) -> None:
    params = PARAMS["sampled"]
    with Engine(backend, FakeTokenizer(), check_invariants=True) as engine:
        first = engine.submit(PROMPT, params).join()
        more = [*PROMPT, *first.token_ids, 9, 9]
        again = engine.submit(more, params).join()
    with Engine(backend, FakeTokenizer(), speculate=False, retain=False) as engine:
        cold = engine.submit(more, params).join()
    assert again.timings.cached_tokens > len(PROMPT)
    assert told(again) == told(cold)
