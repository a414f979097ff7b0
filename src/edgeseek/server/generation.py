"""Answers on their way from the engine's thread to the event loop.

However many sequences a step advances, the loop is woken once for all of them: the engine's thread appends
to mailboxes, and asks for a wake-up when the step's chunks are all there.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from edgeseek.engine import Chunk, Generation, SamplingParams

if TYPE_CHECKING:
    from edgeseek.engine.grammar import Constraint
    from edgeseek.llm import LLM

T = TypeVar("T")
#: An answer's index within its request, and what came for it.
Item = tuple[int, "Chunk | BaseException"]

#: Seconds after which a stream that has nothing to say shows that it is alive.
KEEP_ALIVE_S = 15.0


class Bridge:
    """The way onto one event loop; `deliver` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._filled: deque[Mailbox] = deque()
        self._waking = False
        self._open: set[Mailbox] = set()
        self._timer: asyncio.TimerHandle | None = None

    def mailbox(self) -> Mailbox:
        """A new place to deliver to; close it."""
        box = Mailbox(self, self._loop)
        self._open.add(box)
        if self._timer is None:
            self._timer = self._loop.call_later(KEEP_ALIVE_S, self._tick)
        return box

    def forget(self, box: Mailbox) -> None:
        """Deliver nothing to it any more."""
        self._open.discard(box)

    def deliver(self, box: Mailbox, item: Item) -> None:
        """Put `item` into `box`; its reader is woken with the next `flush`."""
        box.items.append(item)
        self._filled.append(box)

    def flush(self) -> None:
        """Wake the readers of all that was filled."""
        if not self._filled:
            return
        with self._lock:
            if self._waking:
                return
            self._waking = True
        try:
            self._loop.call_soon_threadsafe(self._flush)
        except RuntimeError:  # the loop is closed, so nobody waits
            return

    def _flush(self) -> None:
        with self._lock:
            self._waking = False
        while self._filled:
            self._filled.popleft().wake()

    def _tick(self) -> None:
        for box in self._open:
            box.wake(anyway=True)
        self._timer = self._loop.call_later(KEEP_ALIVE_S, self._tick) if self._open else None


class Mailbox:
    """Items for one request, read by one task."""

    def __init__(self, bridge: Bridge, loop: asyncio.AbstractEventLoop) -> None:
        self.items: deque[Item] = deque()
        self._bridge = bridge
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None

    def wake(self, *, anyway: bool = False) -> None:
        """Let the reader look if there is something that it has not taken yet, or `anyway`."""
        waiter = self._waiter
        if waiter is not None and not waiter.done() and (self.items or anyway):
            waiter.set_result(None)

    async def take(self) -> list[Item]:
        """All that has come; waits for something, but gives an empty list now and then if nothing does."""
        if not self.items:
            self._waiter = self._loop.create_future()
            # What came between the look and the waiter has found nobody to wake.
            if not self.items:
                await self._waiter
            self._waiter = None
        taken: list[Item] = []
        while self.items:
            taken.append(self.items.popleft())
        return taken

    def close(self) -> None:
        """Nothing more is read."""
        self._bridge.forget(self)


@dataclass(frozen=True)
class Job:
    """One sequence to run."""

    prompt: Sequence[int]
    params: SamplingParams
    constraint: Constraint | None = None


class Answers:
    """The running sequences of one request. Cancel it in whatever way the request ends."""

    def __init__(self, box: Mailbox, generations: Sequence[Generation]) -> None:
        self._box = box
        self._generations = list(generations)
        self._open = self.count = len(generations)

    @property
    def unfinished(self) -> bool:
        """Whether more comes."""
        return self._open > 0

    async def take(self) -> list[tuple[int, Chunk]]:
        """The chunks that came since, each with its answer's index; empty where nothing comes for long.

        Raises what ended an answer.
        """
        found: list[tuple[int, Chunk]] = []
        for index, item in await self._box.take():
            if isinstance(item, BaseException):
                raise item
            found.append((index, item))
            self._open -= item.finish_reason is not None
        return found

    def cancel(self) -> None:
        """End what still runs; safe to call twice."""
        for generation in self._generations:
            generation.close()
        self._generations = []
        self._box.close()


class Starter:
    """Prepares requests on a few threads, so that no prompt's rendering or encoding holds up the loop."""

    def __init__(self, bridge: Bridge, *, threads: int = 2) -> None:
        self._bridge = bridge
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="edgeseek-prepare")

    async def run(self, work: Callable[[], T]) -> T:
        """`work()` on one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def start(self, llm: LLM, jobs: Callable[[], Sequence[Job]], salt: bytes) -> Answers:
        """Submit what `jobs` prepares. Raises what that or the engine's admission raises."""
        box = self._bridge.mailbox()
        llm.engine.after_delivery = self._bridge.flush
        submitted = self._pool.submit(lambda: self._submit(llm, jobs(), salt, box))
        try:
            generations = await asyncio.wrap_future(submitted)
        except BaseException:
            box.close()
            # Who asked is gone, but the thread may be at it.
            submitted.add_done_callback(_cancel_submitted)
            raise
        return Answers(box, generations)

    def _submit(self, llm: LLM, jobs: Sequence[Job], salt: bytes, box: Mailbox) -> list[Generation]:
        started: list[Generation] = []
        try:
            for index, job in enumerate(jobs):
                started.append(
                    llm.engine.submit(
                        job.prompt,
                        job.params,
                        owner=llm,
                        salt=salt,
                        constraint=job.constraint,
                        deliver=self._delivery(box, index),
                    )
                )
        except BaseException:
            for generation in started:
                generation.close()
            raise
        return started

    def _delivery(self, box: Mailbox, index: int) -> Callable[[Chunk | BaseException], None]:
        return lambda item: self._bridge.deliver(box, (index, item))

    def close(self) -> None:
        """Finish what is being prepared."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _cancel_submitted(submitted: Future[list[Generation]]) -> None:
    if not submitted.cancelled() and submitted.exception() is None:
        for generation in submitted.result():
            generation.close()
