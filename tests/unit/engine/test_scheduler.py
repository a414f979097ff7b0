"""How a step is divided, who is admitted and who gives way, without any backend."""

from __future__ import annotations

from edgeseek.engine.params import SamplingParams
from edgeseek.engine.sampler import SamplingState
from edgeseek.engine.scheduler import Scheduled, Scheduler
from edgeseek.engine.sequence import Sequence
from edgeseek.engine.stopping import StopRules
from edgeseek.runtime.backend import Capabilities


def scheduler(
    blocks: int = 64, *, slots: int = 8, step_tokens: int = 64, mixed: bool = True, retain: bool = True
) -> Scheduler:
    capabilities = Capabilities(paged=True, mixed_batches=mixed, prefix_sharing=True, rollback=True)
    return Scheduler(blocks, capabilities, slots=slots, step_tokens=step_tokens, retain=retain)


def sequence(number: int, length: int) -> Sequence:
    params = SamplingParams()
    # Different from the first token on, so that nobody reuses another's blocks.
    tokens = [number, *range(length - 1)]
    return Sequence(number, tokens, SamplingState(params, tokens), StopRules(params, (), 1000))


def run(s: Scheduler) -> list[tuple[int, int]]:
    """One step; every sequence that is complete gets token 5. Returns (id, tokens) of its parts."""
    batch = s.schedule()
    for item in batch:
        s.advance(item)
        if item.completes:
            item.sequence.append(5)
    s.check()
    return sizes(batch)


def sizes(batch: list[Scheduled]) -> list[tuple[int, int]]:
    return [(item.sequence.id, len(item.slice.tokens)) for item in batch]


def test_a_long_prompt_is_cut_to_the_budget_and_draws_at_its_end_only() -> None:
    s = scheduler(step_tokens=64)
    long = sequence(1, 150)
    s.add(long)
    seen = []
    for _ in range(3):
        (item,) = s.schedule()
        seen.append((item.slice.past, len(item.slice.tokens), len(item.slice.block_table), item.slice.logits))
        s.advance(item)
    assert seen == [(0, 64, 2, "none"), (64, 64, 4, "none"), (128, 22, 5, "last")]


def test_prompts_share_the_budget_evenly_and_short_ones_leave_theirs_to_the_long() -> None:
    s = scheduler(step_tokens=64)
    for number, length in ((1, 500), (2, 10), (3, 500)):
        s.add(sequence(number, length))
    assert run(s) == [(1, 27), (2, 10), (3, 27)]


def test_decodes_are_in_every_step_beside_any_number_of_prompts() -> None:
    s = scheduler(step_tokens=8)
    s.add(sequence(1, 2))
    run(s)
    for number in (2, 3, 4):
        s.add(sequence(number, 300))
    for _ in range(50):
        step = run(s)
        assert step[0] == (1, 1)
        assert sum(tokens for _, tokens in step) <= 8


def test_beside_a_decode_prompts_get_a_smaller_part_of_a_large_step() -> None:
    s = scheduler(step_tokens=512)
    s.add(sequence(1, 400))
    assert run(s) == [(1, 400)]
    s.add(sequence(2, 400))
    assert run(s) == [(1, 1), (2, 128)]


def test_no_more_run_than_there_are_slots_and_the_next_in_line_follows() -> None:
    s = scheduler(slots=2)
    one, two, three = (sequence(n, 5) for n in (1, 2, 3))
    for each in (one, two, three):
        s.add(each)
    assert [number for number, _ in run(s)] == [1, 2]
    s.remove(one)
    assert [number for number, _ in run(s)] == [2, 3]


def test_a_prompt_waits_until_its_blocks_can_be_had() -> None:
    s = scheduler(blocks=4, retain=False)
    first, second = sequence(1, 90), sequence(2, 60)
    s.add(first)
    s.add(second)
    run(s)
    assert (list(s.running), list(s.waiting)) == ([first], [second])
    s.remove(first)
    run(s)
    assert list(s.running) == [second]


def test_when_growing_fails_the_youngest_gives_way_and_starts_over() -> None:
    s = scheduler(blocks=4, step_tokens=256)
    old, young = sequence(1, 64), sequence(2, 64)
    s.add(old)
    s.add(young)
    assert run(s) == [(1, 64), (2, 64)]
    assert run(s) == [(1, 1)]
    assert (list(s.waiting), young.computed, young.block_table, young.preemptions) == ([young], 0, [], 1)
    s.remove(old, retain=False)
    assert run(s) == [(2, 65)]


def test_retained_sequences_are_evicted_before_anybody_gives_way() -> None:
    s = scheduler(blocks=4, step_tokens=256)
    done, old, young = sequence(1, 32), sequence(2, 32), sequence(3, 32)
    for each in (done, old, young):
        s.add(each)
    run(s)
    s.remove(done)
    assert (len(s.retained), s.blocks.available) == (1, 1)
    run(s)
    assert (len(s.retained), len(s.running)) == (0, 2)


def test_without_mixed_batches_prompts_and_decodes_take_turns() -> None:
    s = scheduler(mixed=False, step_tokens=8)
    s.add(sequence(1, 2))
    run(s)
    s.add(sequence(2, 40))
    steps = [run(s) for _ in range(4)]
    assert steps == [[(2, 8)], [(1, 1)], [(2, 8)], [(1, 1)]]


def test_a_reservation_evicts_retained_sequences_and_returns_with_them_gone() -> None:
    s = scheduler(blocks=4)
    one = sequence(1, 100)
    s.add(one)
    while run(s) != [(1, 1)]:
        pass
    s.remove(one)
    assert s.blocks.available == 0
    taken = s.reserve(4)
    assert sorted(taken) == [0, 1, 2, 3]
    assert len(s.retained) == 0
