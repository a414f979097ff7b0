"""Steps are taken in order, one at a time and no further than the level, and undone when it is over."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from edgeseek.errors import RuntimeFailure
from edgeseek.memory.guard import STEPS, GuardEvent, MemoryGuard
from edgeseek.memory.pressure import Level, PressureMonitor

ORDER = [
    "stop_admitting",
    "drop_prefix_cache",
    "release_kv_pages",
    "page_out_weights",
    "shrink_slots",
    "end_newest",
]


class Engine:
    """Remembers what it was asked to give up."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.nothing: set[str] = set()
        self.closed = False

    def _did(self, name: str) -> str:
        if self.closed:
            raise RuntimeFailure("the engine is closed")
        self.calls.append(name)
        return "" if name in self.nothing else f"{name} done"

    def stop_admitting(self, reason: str, /) -> str:
        assert "short of memory" in reason
        return self._did("stop_admitting")

    def admit_again(self) -> None:
        self._did("admit_again")

    def drop_prefix_cache(self) -> str:
        return self._did("drop_prefix_cache")

    def release_kv_pages(self) -> str:
        return self._did("release_kv_pages")

    def page_out_weights(self) -> str:
        return self._did("page_out_weights")

    def shrink_slots(self) -> str:
        return self._did("shrink_slots")

    def restore_slots(self) -> None:
        self._did("restore_slots")

    def end_newest(self, reason: str, /) -> str:
        assert "ran out of memory" in reason
        return self._did("end_newest")


class Bench:
    """A guard over a fake engine, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.engine = Engine()
        self.events: list[GuardEvent] = []
        self.guard = MemoryGuard(
            self.engine,
            PressureMonitor([]),
            clock=lambda: self.now,
            settle_s=1.0,
            calm_s=10.0,
            report=self.events.append,
        )

    def rounds(self, level: Level, count: int, every: float = 1.0) -> None:
        for _ in range(count):
            self.guard.advance(level)
            self.now += every


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_steps_are_those_of_the_table() -> None:
    assert [step.name for step in STEPS] == ORDER


def test_steps_come_in_order_one_a_round_under_critical_pressure(bench: Bench) -> None:
    bench.rounds(Level.CRITICAL, 6)
    assert bench.engine.calls == ORDER
    assert bench.guard.in_force == tuple(ORDER)
    assert [(event.step, event.undone, event.at) for event in bench.events] == [
        (name, False, float(i)) for i, name in enumerate(ORDER)
    ]
    assert bench.guard.taken == dict.fromkeys(ORDER, 1)


def test_a_step_is_given_time_before_the_next(bench: Bench) -> None:
    bench.rounds(Level.CRITICAL, 5, every=0.25)
    assert bench.engine.calls == ORDER[:2]


@pytest.mark.parametrize(("level", "steps"), [(Level.LOW, 3), (Level.HIGH, 5), (Level.CRITICAL, 6)])
def test_no_step_is_taken_that_the_level_does_not_ask_for(bench: Bench, level: Level, steps: int) -> None:
    bench.rounds(level, 20)
    assert bench.guard.in_force == tuple(ORDER[:steps])
    assert set(bench.engine.calls) == set(ORDER[:steps])


def test_without_pressure_nothing_happens(bench: Bench) -> None:
    bench.rounds(Level.NONE, 20)
    assert bench.engine.calls == []


def test_everything_is_undone_in_reverse_when_it_was_calm_long_enough(bench: Bench) -> None:
    bench.rounds(Level.HIGH, 5)
    bench.engine.calls.clear()
    bench.rounds(Level.NONE, 9)
    assert bench.engine.calls == []
    bench.rounds(Level.NONE, 2)
    assert bench.engine.calls == ["restore_slots", "admit_again"]
    assert bench.guard.in_force == ()
    assert [(event.step, event.undone) for event in bench.events[5:]] == [
        ("shrink_slots", True),
        ("stop_admitting", True),
    ]


def test_pressure_that_comes_back_before_that_keeps_the_steps(bench: Bench) -> None:
    bench.rounds(Level.LOW, 3)
    for _ in range(5):
        bench.rounds(Level.NONE, 8)
        bench.rounds(Level.LOW, 1)
    assert "admit_again" not in bench.engine.calls
    assert bench.guard.in_force == tuple(ORDER[:3])


def test_after_the_end_it_begins_anew(bench: Bench) -> None:
    bench.rounds(Level.LOW, 3)
    bench.rounds(Level.NONE, 12)
    bench.engine.calls.clear()
    bench.rounds(Level.LOW, 1)
    assert bench.engine.calls == ["stop_admitting"]
    assert bench.guard.taken["stop_admitting"] == 2


def test_what_use_fills_again_is_given_back_again_while_pressure_goes_on(bench: Bench) -> None:
    bench.rounds(Level.LOW, 6)
    assert bench.engine.calls == [*ORDER[:3], *(["drop_prefix_cache", "release_kv_pages"] * 3)]


def test_one_request_is_ended_and_the_next_only_much_later(bench: Bench) -> None:
    bench.rounds(Level.CRITICAL, 6)
    bench.engine.calls.clear()
    bench.rounds(Level.CRITICAL, 7)
    assert "end_newest" not in bench.engine.calls
    bench.rounds(Level.CRITICAL, 1)
    assert bench.engine.calls.count("end_newest") == 1


def test_a_step_that_gave_nothing_is_not_counted_and_the_next_follows(bench: Bench) -> None:
    bench.engine.nothing = {"drop_prefix_cache", "page_out_weights"}
    bench.rounds(Level.CRITICAL, 6)
    assert bench.engine.calls == ORDER
    assert set(bench.guard.taken) == set(ORDER) - bench.engine.nothing


def test_each_step_is_logged_with_the_level_and_what_it_gave(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "edgeseek.memory.guard"):
        bench.rounds(Level.LOW, 1)
        bench.rounds(Level.NONE, 12)
    assert [record.getMessage() for record in caplog.records] == [
        "memory pressure is low: stop_admitting: stop_admitting done",
        "memory pressure is over: stop_admitting undone",
    ]


def test_closing_undoes_what_is_in_force_and_survives_a_closed_engine(bench: Bench) -> None:
    bench.rounds(Level.HIGH, 5)
    bench.guard.close()
    assert bench.engine.calls[-2:] == ["restore_slots", "admit_again"]
    bench.rounds(Level.HIGH, 1)
    bench.engine.closed = True
    bench.guard.close()


def test_its_thread_turns_events_into_steps() -> None:
    import threading

    engine, stepped = Engine(), threading.Event()

    class Source:
        name = "always critical"

        def descriptors(self) -> Sequence[tuple[int, int]]:
            return ()

        def ready(self, _descriptor: int, _events: int, /) -> Level:
            return Level.NONE

        def poll(self, _: float, /) -> Level:
            return Level.CRITICAL

        def close(self) -> None:
            pass

    def heard(event: GuardEvent) -> None:
        if event.step == "end_newest":
            stepped.set()

    monitor = PressureMonitor([Source()], waiter=lambda _, __: [])
    guard = MemoryGuard(engine, monitor, settle_s=0.0, report=heard)
    guard.start()
    assert stepped.wait(20)
    guard.close()
    assert [name for i, name in enumerate(engine.calls) if name not in engine.calls[:i]][:6] == ORDER
    assert engine.calls[-2:] == ["restore_slots", "admit_again"]
