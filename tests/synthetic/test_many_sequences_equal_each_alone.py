"""The batch, the chunking, preemption and reused prefixes never change what a request gets."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeseek.engine import Completion, Engine, Generation, SamplingParams
from tests.unit.engine.fake_backend import VOCAB, FakeBackend, FakeTokenizer


@dataclass(frozen=True)
class Ask:
    prompt: tuple[int, ...]
    params: SamplingParams


def asks(count: int, seed: int, longest: int = 200) -> list[Ask]:
    """Prompts of mixed length, some beginning alike, with mixed sampling."""
    draw = random.Random(seed)
    opening = [draw.randrange(VOCAB - 1) for _ in range(longest)]
    out = []
    for i in range(count):
        length = draw.randrange(1, longest)
        common = draw.choice([0, 0, length // 2, length])
        tail = [draw.randrange(VOCAB - 1) for _ in range(length - common)]
        params = SamplingParams(
            temperature=draw.choice([0.0, 0.8]),
            top_k=draw.choice([0, 20]),
            top_p=draw.choice([1.0, 0.9]),
            repetition_penalty=draw.choice([1.0, 1.2]),
            frequency_penalty=draw.choice([0.0, 0.3]),
            seed=i,
            max_tokens=draw.randrange(1, 60),
            ignore_eos=draw.random() < 0.5,
        )
        out.append(Ask((*opening[:common], *tail), params))
    return out


def alone(ask: Ask) -> Completion:
    with Engine(FakeBackend(), FakeTokenizer(), step_tokens=4096, retain=False) as engine:
        return engine.submit(ask.prompt, ask.params).join()


def together(wanted: list[Ask], engine: Engine) -> list[Completion]:
    running = [engine.submit(ask.prompt, ask.params) for ask in wanted]
    return [generation.join() for generation in running]


def told(completion: Completion) -> tuple[tuple[int, ...], str, str]:
    return completion.token_ids, completion.text, completion.finish_reason


def all_blocks_are_back(engine: Engine, backend: FakeBackend) -> bool:
    """Whether every block of the pool can be had at once."""
    return engine.borrow(backend.num_blocks, lambda _, blocks: len(set(blocks))) == backend.num_blocks


@pytest.mark.parametrize("step_tokens", [8, 13, 64, 4096])
@pytest.mark.parametrize("retain", [False, True])
def test_eight_together_in_chunks_of_any_size_equal_each_alone(step_tokens: int, retain: bool) -> None:
    wanted = asks(16, seed=step_tokens)
    backend = FakeBackend()
    with Engine(
        backend, FakeTokenizer(), step_tokens=step_tokens, retain=retain, check_invariants=True
    ) as engine:
        got = together(wanted, engine)
        assert all_blocks_are_back(engine, backend)
    assert [told(c) for c in got] == [told(alone(ask)) for ask in wanted]
    assert max(len(batch) for batch in backend.batches) == 8
    assert max(sum(len(part.tokens) for part in batch) for batch in backend.batches) <= step_tokens


def test_in_a_pool_too_small_for_all_some_are_computed_again_and_none_differs() -> None:
    wanted = asks(12, seed=5)
    backend = FakeBackend(num_blocks=12)
    with Engine(backend, FakeTokenizer(), step_tokens=64, check_invariants=True) as engine:
        got = together(wanted, engine)
        assert all_blocks_are_back(engine, backend)
    assert [told(c) for c in got] == [told(alone(ask)) for ask in wanted]
    assert sum(c.timings.preemptions for c in got) > 0


def test_a_backend_without_mixed_batches_or_sharing_gives_the_same() -> None:
    wanted = asks(8, seed=6)
    backend = FakeBackend(mixed_batches=False, prefix_sharing=False, rollback=False)
    with Engine(backend, FakeTokenizer(), step_tokens=64, check_invariants=True) as engine:
        got = together(wanted, engine)
    assert [told(c) for c in got] == [told(alone(ask)) for ask in wanted]
    for batch in backend.batches:
        assert len({part.past > 0 and len(part.tokens) == 1 for part in batch}) == 1 or all(
            len(part.tokens) == 1 for part in batch
        )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    blocks=st.integers(8, 40),
    slots=st.integers(1, 8),
    actions=st.lists(st.sampled_from(["submit", "submit", "read", "cancel", "drop"]), max_size=30),
)
def test_random_arrivals_reads_and_cancels_never_leak_a_block_or_change_a_token(
    seed: int, blocks: int, slots: int, actions: list[str]
) -> None:
    draw = random.Random(seed)
    wanted = asks(len(actions), seed)
    backend = FakeBackend(num_blocks=blocks)
    open_ones: list[tuple[Ask, Generation, list[int]]] = []
    finished: list[tuple[Ask, list[int], str | None]] = []
    engine = Engine(backend, FakeTokenizer(), context=256, slots=slots, step_tokens=64, check_invariants=True)
    with engine:
        for ask, action in zip(wanted, actions, strict=True):
            if action == "submit" or not open_ones:
                open_ones.append((ask, engine.submit(ask.prompt, ask.params), []))
                continue
            chosen = draw.randrange(len(open_ones))
            known, generation, tokens = open_ones[chosen]
            if action == "read":
                chunk = next(generation, None)
                tokens.extend(chunk.token_ids if chunk else ())
            elif action == "cancel":
                generation.cancel()
            else:
                generation.close()
                open_ones.pop(chosen)
        for known, generation, tokens in open_ones:
            reason: str | None = None
            for chunk in generation:
                tokens.extend(chunk.token_ids)
                reason = chunk.finish_reason
            finished.append((known, tokens, reason))
        assert all_blocks_are_back(engine, backend)
    for known, tokens, reason in finished:
        expected = list(alone(known).token_ids)
        if reason in {"stop", "length"}:
            assert tokens == expected
        else:
            assert tokens == expected[: len(tokens)]
