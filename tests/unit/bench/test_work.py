"""Workloads count what they did by the clock they are given, and stop when they are told to."""

from __future__ import annotations

import itertools
import threading

import pytest

from edgeseek.bench.work import Workload, WorkStoppedError, blocks_for
from tests.unit.engine.fake_backend import FakeBackend


def workload(backend: FakeBackend, stop: threading.Event | None = None) -> Workload:
    """On all blocks of `backend`, with a clock that is a second later at each look."""
    ticks = itertools.count()
    return Workload(
        backend,
        range(backend.num_blocks),
        step_tokens=64,
        stop=stop or threading.Event(),
        clock=lambda: float(next(ticks)),
    )


def test_a_prompt_is_run_in_steps_and_only_its_last_row_gets_logits() -> None:
    backend = FakeBackend()
    rate = workload(backend).prefill(150, repeat=1)
    assert [len(batch[0].tokens) for batch in backend.batches] == [64, 64, 22]
    assert [batch[0].logits for batch in backend.batches] == ["none", "none", "last"]
    assert (rate.tokens_per_s, rate.step_s) == (150.0, 1.0)


def test_streams_decode_in_blocks_of_their_own_up_to_the_context() -> None:
    backend = FakeBackend()
    rate = workload(backend).decode(context=64, streams=3, steps=8, repeat=2)
    steps = [batch for batch in backend.batches if batch[0].logits == "last"]
    assert len(steps) == 16
    assert all(len(batch) == 3 for batch in steps)
    assert [part.past for part in steps[0]] == [56] * 3
    assert [part.past for part in steps[7]] == [63] * 3
    tables = [set(part.block_table) for part in steps[0]]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(tables, 2))
    assert rate.tokens_per_s == 24.0


def test_every_block_is_written_before_it_is_read() -> None:
    backend = FakeBackend()
    workload(backend).decode(context=96, streams=1, steps=4, repeat=1)
    touched = {part.past // 32 for batch in backend.batches for part in batch if part.logits == "none"}
    assert touched == {0, 1, 2}
    assert blocks_for(96) == 3


def test_a_stopped_workload_runs_no_further_step() -> None:
    backend, stop = FakeBackend(), threading.Event()
    stop.set()
    with pytest.raises(WorkStoppedError):
        workload(backend, stop).prefill(64, repeat=1)
    assert backend.batches == []
