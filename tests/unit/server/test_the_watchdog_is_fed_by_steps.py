"""The watchdog hears of an engine that steps, and of none that is dead while its model serves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from edgeseek.errors import RuntimeFailure

pytest.importorskip("fastapi", reason="needs pip install 'edgeseek[server]'")

from edgeseek.server.lifecycle import engine_steps


@dataclass
class Host:
    """As much of a ModelHost as the watchdog looks at."""

    llm: Any


class Engine:
    """Calls `then` in place of a step."""

    def __init__(self, then: Any) -> None:
        self.engine = self
        self._then = then

    def between_steps(self, _work: Any) -> None:
        self._then()


def fed(host: Host) -> bool:
    return asyncio.run(engine_steps(host))  # type: ignore[arg-type]


def dead() -> None:
    raise RuntimeFailure("the engine ended before the work did")


def test_an_engine_that_steps_feeds_it() -> None:
    assert fed(Host(Engine(lambda: None)))


def test_a_dead_engine_does_not() -> None:
    assert not fed(Host(Engine(dead)))


def test_no_model_is_no_fault() -> None:
    assert fed(Host(None))


def test_a_model_that_was_released_meanwhile_is_no_fault() -> None:
    host = Host(None)

    def released() -> None:
        host.llm = None
        dead()

    host.llm = Engine(released)
    assert fed(host)


def test_an_engine_that_hangs_keeps_the_watchdog_waiting() -> None:
    async def wait() -> bool:
        gate = asyncio.Event()
        loop = asyncio.get_running_loop()
        engine = Engine(lambda: asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(10))
        task = loop.create_task(engine_steps(Host(engine)))  # type: ignore[arg-type]
        # Every turn of the loop that a fed watchdog could need.
        for _ in range(50):
            await asyncio.sleep(0)
        hung = not task.done()
        gate.set()
        return hung and await task

    assert asyncio.run(wait())
