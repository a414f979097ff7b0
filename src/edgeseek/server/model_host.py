"""Holds the one model: loads it beside the event loop, lends it to requests, releases it when idle.

| state    | meaning                                                                             |
|----------|-------------------------------------------------------------------------------------|
| loading  | being loaded; the first time requests get 503, later they wait for it                |
| ready    | lent to requests                                                                    |
| unloaded | released after an idle time; the next request loads it again                        |
| failed   | the first load failed; the server ends with that error                              |
| stopping | draining: those that run go on, new ones get 503                                    |

Lives on the event loop; only the load itself and the release run on a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from edgeseek.server.errors import ApiError

if TYPE_CHECKING:
    from edgeseek.llm import LLM

State = Literal["loading", "ready", "unloaded", "failed", "stopping"]

#: Seconds that a client is told to wait.
RETRY_LOADING_S = 2
RETRY_BUSY_S = 2
RETRY_STOPPING_S = 30


@dataclass
class LoadProgress:
    """How far a load is; written by the loading thread, read by /health."""

    stage: str = "starting"
    done: int = 0
    total: int | None = None

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Note progress, as `LLM.load` reports it."""
        self.stage, self.done, self.total = stage, done, total


class Loader(Protocol):
    """Loads the model, on a thread; reports to `progress` meanwhile."""

    def __call__(self, progress: LoadProgress) -> LLM:
        """The loaded model. Raises what `LLM.load` raises."""
        ...


class Lease:
    """A request's hold on the model; released once, in whatever way the request ends."""

    def __init__(self, llm: LLM, release: Callable[[], None]) -> None:
        self.llm = llm
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Give it back; safe to call twice."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> LLM:
        return self.llm

    def __exit__(self, *exc: object) -> None:
        self.release()


class ModelHost:
    """One model's life. `name` is what clients call it; `max_queue` more may wait than run at once."""

    def __init__(
        self,
        load: Loader,
        *,
        name: str,
        max_queue: int = 64,
        idle_unload: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self.name = name
        self.aliases: set[str] = {name}
        self._max_queue = max_queue
        self._idle_unload = idle_unload
        self._clock = clock
        self.state: State = "unloaded"
        self.progress = LoadProgress()
        self.error: BaseException | None = None
        self.active = 0
        self.loads = 0
        self._llm: LLM | None = None
        self._loading: asyncio.Task[None] | None = None
        self._used_at = clock()
        self._idle_task: asyncio.Task[None] | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()
        #: Called on the loop when the model became ready, and with the error when the first load failed.
        self.on_ready: Callable[[LLM], None] = _nothing
        self.on_failed: Callable[[BaseException], None] = _nothing

    @property
    def llm(self) -> LLM | None:
        """The model while it is loaded."""
        return self._llm

    def start(self) -> None:
        """Begin to load; must be called on the event loop."""
        self._begin_load()
        if self._idle_unload is not None:
            self._idle_task = asyncio.get_running_loop().create_task(self._watch_idle(self._idle_unload))

    async def lease(self, model: str | None = None) -> Lease:
        """The model for one request, which named `model`.

        Raises ApiError: 404 for another model, 503 while it loads for the first time or the server
        stops, 429 when as many requests run and wait as may.
        """
        if model is not None and model not in self.aliases:
            raise ApiError(
                404,
                f"the model {model!r} is not served here; ask for {self.name!r}",
                param="model",
                code="model_not_found",
            )
        if self.state == "stopping":
            raise ApiError(503, "the server is stopping", code="stopping", retry_after=RETRY_STOPPING_S)
        if self._llm is None:
            await self._loaded()
        llm = self._llm
        if llm is None or self.state != "ready":
            raise ApiError(503, "the model is not loaded", code="model_loading", retry_after=RETRY_LOADING_S)
        limit = self.slots + self._max_queue
        if self.active >= limit:
            raise ApiError(
                429,
                f"{limit} requests run or wait already; try again later",
                code="queue_full",
                retry_after=RETRY_BUSY_S,
            )
        self.active += 1
        self._quiet.clear()
        return Lease(llm, self._released)

    @property
    def slots(self) -> int:
        """Requests that may run at once."""
        from edgeseek.engine.engine import SLOTS

        return SLOTS if self._llm is None else max(self._llm.plan.slots, SLOTS)

    async def quiet(self) -> None:
        """Wait until no request holds the model."""
        await self._quiet.wait()

    def stop_admitting(self) -> None:
        """From now on only those that run go on."""
        if self.state != "failed":
            self.state = "stopping"

    async def close(self) -> None:
        """End everything and release the model."""
        self.stop_admitting()
        for task in (self._idle_task, self._loading):
            if task is not None:
                if task is self._idle_task:
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        llm, self._llm = self._llm, None
        if llm is not None:
            await asyncio.to_thread(llm.close)

    def _released(self) -> None:
        self.active -= 1
        self._used_at = self._clock()
        if self.active == 0:
            self._quiet.set()

    async def _loaded(self) -> None:
        if self.state == "unloaded":
            self._begin_load()
        if self.loads == 0 or self._loading is None:
            about = self.progress.stage
            raise ApiError(
                503, f"the model is loading ({about})", code="model_loading", retry_after=RETRY_LOADING_S
            )
        # One client that goes away must not end the load for the others.
        await asyncio.shield(self._loading)
        if self._llm is None:
            raise ApiError(
                503,
                "the model could not be loaded again; the server's log says why",
                code="model_loading",
                retry_after=RETRY_LOADING_S,
            )

    def _begin_load(self) -> None:
        self.state = "loading"
        self.progress = LoadProgress()
        self._loading = asyncio.get_running_loop().create_task(self._run_load())

    async def _run_load(self) -> None:
        try:
            llm = await asyncio.to_thread(self._load, self.progress)
        except Exception as error:  # noqa: BLE001  # whatever a load raises is kept and shown
            self.error = error
            if self.state == "stopping":
                return
            self.state = "failed" if self.loads == 0 else "unloaded"
            self.on_failed(error)
            return
        self.loads += 1
        self._llm = llm
        self.aliases.add(llm.name)
        self._used_at = self._clock()
        if self.state == "loading":
            self.state = "ready"
            self.on_ready(llm)

    async def _watch_idle(self, limit: float) -> None:
        while True:
            await asyncio.sleep(min(max(limit / 4, 0.05), 5.0))
            if self.state == "ready" and not self.active and self._clock() - self._used_at >= limit:
                llm, self._llm = self._llm, None
                self.state = "unloaded"
                if llm is not None:
                    await asyncio.to_thread(llm.close)


def _nothing(_: object) -> None:
    """What follows where nobody wants to know."""
