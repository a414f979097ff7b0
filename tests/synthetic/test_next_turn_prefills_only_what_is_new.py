"""The KV of a finished request is gone on from, cut back or shared, with the same tokens as without it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgeseek.engine import Completion, Engine, SamplingParams
from tests.unit.engine.fake_backend import FakeBackend, FakeTokenizer

PARAMS = SamplingParams(max_tokens=20, ignore_eos=True)


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def engine(backend: FakeBackend) -> Iterator[Engine]:
    with Engine(backend, FakeTokenizer(), check_invariants=True) as engine:
        yield engine


def cold(prompt: list[int]) -> tuple[int, ...]:
    with Engine(FakeBackend(), FakeTokenizer()) as engine:
        return engine.submit(prompt, PARAMS).join().token_ids


def ask(engine: Engine, prompt: list[int]) -> Completion:
    completion = engine.submit(prompt, PARAMS).join()
    assert completion.token_ids == cold(prompt)
    return completion


def test_the_second_turn_runs_the_last_answer_token_and_the_new_message_only(
    engine: Engine, backend: FakeBackend
) -> None:
    prompt = list(range(50))
    answer = ask(engine, prompt)
    backend.batches.clear()
    second = ask(engine, [*prompt, *answer.token_ids, 1, 2, 3])
    assert second.timings.cached_tokens == 50 + 19
    assert second.timings.prefill_tokens == 4
    assert [len(part.tokens) for part in backend.batches[0]] == [4]


def test_the_same_prompt_again_runs_its_last_token_only(engine: Engine) -> None:
    prompt = list(range(40))
    ask(engine, prompt)
    assert ask(engine, prompt).timings.cached_tokens == 39


def test_an_answer_that_the_template_drops_is_cut_off(engine: Engine) -> None:
    prompt = list(range(50))
    ask(engine, prompt)
    assert ask(engine, [*prompt, 7, 7, 7]).timings.cached_tokens == 50


def test_two_chats_with_one_system_prompt_share_its_full_blocks(engine: Engine) -> None:
    system = list(range(40))
    first = [*system, *([3] * 100)]
    answer = ask(engine, first)
    assert ask(engine, [*system, *([4] * 100)]).timings.cached_tokens == 32
    again = ask(engine, [*first, *answer.token_ids, 5])
    assert again.timings.cached_tokens == 140 + 19


def test_a_cancelled_answer_is_gone_on_from(engine: Engine) -> None:
    prompt = list(range(45))
    generation = engine.submit(prompt, SamplingParams(ignore_eos=True))
    got = [next(generation).token_ids[0] for _ in range(3)]
    generation.cancel()
    last = None
    for last in generation:
        got.extend(last.token_ids)
    assert last is not None
    assert last.finish_reason == "cancelled"
    assert ask(engine, [*prompt, *got, 9]).timings.cached_tokens >= 45 + len(got) - 1


def test_with_retention_off_nothing_is_reused() -> None:
    with Engine(FakeBackend(), FakeTokenizer(), retain=False) as engine:
        ask(engine, list(range(40)))
        assert ask(engine, list(range(40))).timings.cached_tokens == 0
