"""The model's life: requests wait or are told to come back, and an idle model is released."""

from __future__ import annotations

import asyncio
import threading

import pytest

from edgeseek.errors import OverloadedError, PackageFormatError
from edgeseek.llm import LLM
from edgeseek.server.model_host import LoadProgress, ModelHost
from tests.unit.server.served import Loader, error_of, served


class Gated:
    """A loader that waits for its gate."""

    def __init__(self, load: Loader) -> None:
        self._load = load
        self.gate = threading.Event()
        self.loads = 0

    def __call__(self, progress: LoadProgress) -> LLM:
        progress("downloading", 3, 10)
        assert self.gate.wait(30)
        self.loads += 1
        return self._load(progress)


async def until(host: ModelHost, state: str) -> None:
    while host.state != state:
        await asyncio.sleep(0.005)


def test_while_it_loads_health_tells_how_far_and_requests_are_to_come_back(load: Loader) -> None:
    async def run() -> None:
        gated = Gated(load)
        async with served(gated, wait=False) as s:
            while s.host.progress.total is None:
                await asyncio.sleep(0.005)
            health = await s.client.get("/health")
            assert health.status_code == 503
            assert health.json() == {
                "status": "loading",
                "model": "tiny",
                "stage": "downloading",
                "done": 3,
                "total": 10,
                "active": 0,
            }
            response = await s.chat()
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) > 0
            assert error_of(response)["code"] == "model_loading"
            gated.gate.set()
            await until(s.host, "ready")
            assert (await s.client.get("/health")).json()["status"] == "ok"
            assert (await s.chat()).status_code == 200

    asyncio.run(run())


def test_an_idle_model_is_released_and_loaded_again_for_all_who_ask(load: Loader) -> None:
    async def run() -> None:
        gated = Gated(load)
        gated.gate.set()
        async with served(gated, idle_unload=0.2) as s:
            first = s.llm
            before = (await s.chat(seed=1)).json()["choices"]
            await until(s.host, "unloaded")
            assert s.host.llm is None
            assert (await s.client.get("/health")).status_code == 200
            answers = await asyncio.gather(*(s.chat(seed=1) for _ in range(4)))
            assert [answer.json()["choices"] for answer in answers] == [before] * 4
            assert gated.loads == 2
            assert s.llm is not first

    asyncio.run(run())


def test_a_running_request_keeps_the_model(load: Loader) -> None:
    async def run() -> None:
        async with served(load, idle_unload=0.1) as s:
            lease = await s.host.lease()
            await asyncio.sleep(0.4)
            assert s.host.state == "ready"
            lease.release()
            lease.release()
            assert s.host.active == 0
            await until(s.host, "unloaded")

    asyncio.run(run())


def test_a_full_queue_is_429_with_a_time_to_come_back(load: Loader) -> None:
    async def run() -> None:
        async with served(load, max_queue=1) as s:
            leases = [await s.host.lease() for _ in range(s.host.slots + 1)]
            response = await s.chat()
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) > 0
            assert error_of(response)["type"] == "rate_limit_error"
            leases.pop().release()
            assert (await s.chat()).status_code == 200
            for lease in leases:
                lease.release()

    asyncio.run(run())


def test_short_of_memory_is_429_with_a_time_to_come_back(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            s.llm.engine.refusal = "the machine is short of memory"
            response = await s.chat()
            assert response.status_code == 429
            assert response.headers["retry-after"]
            assert error_of(response)["code"] == "overloaded"
            s.llm.engine.refusal = None
            assert (await s.chat()).status_code == 200
            assert s.host.active == 0

    asyncio.run(run())


def test_a_request_that_the_engine_ends_is_an_error_in_its_stream(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            backend = s.llm.backend
            forward, calls = backend.forward, 0

            def failing(batch):
                nonlocal calls
                calls += 1
                if calls == 4:
                    raise OverloadedError("no room for its blocks")
                return forward(batch)

            backend.forward = failing  # type: ignore[method-assign]
            response = await s.chat(stream=True)
            assert response.status_code == 200
            last = response.text.split("\n\n")[-2]
            assert '"code": "overloaded"' in last or '"code":"overloaded"' in last
            assert "no room" in last
            assert "[DONE]" not in response.text
            calls = 2
            whole = await s.chat()
            assert whole.status_code == 429
            backend.forward = forward  # type: ignore[method-assign]
            assert (await s.chat()).status_code == 200

    asyncio.run(run())


def test_a_first_load_that_fails_is_told_and_kept(load: Loader) -> None:
    def fail(progress: LoadProgress) -> LLM:
        raise PackageFormatError("the file is damaged")

    async def run() -> None:
        failures: list[BaseException] = []
        host = ModelHost(fail, name="tiny")
        host.on_failed = failures.append
        host.start()
        await until(host, "failed")
        assert isinstance(failures[0], PackageFormatError)
        assert host.error is failures[0]

    asyncio.run(run())


@pytest.mark.parametrize("streamed", [True, False])
def test_nothing_is_left_behind(load: Loader, streamed: bool) -> None:
    async def run() -> None:
        async with served(load) as s:
            await asyncio.gather(*(s.chat(stream=streamed, n=2, max_tokens=20) for _ in range(8)))
            assert s.host.active == 0
            running = s.llm.engine.between_steps(lambda scheduler, _: scheduler.running)
            assert running == ()

    asyncio.run(run())
