"""Runs a request's sequences from its lease to its last event, whichever API it came by."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence

from fastapi import Request

from edgeseek.engine import Chunk
from edgeseek.errors import EdgeseekError
from edgeseek.server.context import ServerContext, log_details, salt_of_request
from edgeseek.server.errors import ApiError, api_error
from edgeseek.server.generation import Answers, Job
from edgeseek.server.model_host import Lease
from edgeseek.server.streaming import KEEP_ALIVE
from edgeseek.server.usage import Tally

LOG = logging.getLogger("edgeseek.server")


class Run:
    """A request's running sequences and its hold on the model; `end` it in whatever way it ends."""

    def __init__(self, request: Request, lease: Lease, answers: Answers, tally: Tally) -> None:
        self._request = request
        self._lease = lease
        self._answers = answers
        self.tally = tally

    @classmethod
    async def begin(
        cls,
        request: Request,
        context: ServerContext,
        lease: Lease,
        jobs: Callable[[], Sequence[Job]],
        prompt_of: list[int] | None = None,
    ) -> Run:
        """Submit what `jobs` prepares, on another thread. `prompt_of` is each job's prompt, by default one.

        Takes over the lease, and releases it where this raises.
        """
        try:
            answers = await context.starter.start(lease.llm, jobs, salt_of_request(request))
        except BaseException:
            lease.release()
            raise
        return cls(request, lease, answers, Tally(prompt_of or [0] * answers.count))

    async def take(self) -> dict[int, list[Chunk]]:
        """Chunks by the index of their answer; {} now and then where nothing comes."""
        found: dict[int, list[Chunk]] = defaultdict(list)
        for index, chunk in await self._answers.take():
            found[index].append(chunk)
            if chunk.timings is not None:
                self.tally.add(index, chunk.timings)
        return found

    @property
    def unfinished(self) -> bool:
        """Whether more comes."""
        return self._answers.unfinished

    async def collect(self, consume: Callable[[int, list[Chunk]], object]) -> None:
        """Hand all chunks to `consume` and end."""
        try:
            while self.unfinished:
                for index, chunks in (await self.take()).items():
                    consume(index, chunks)
        finally:
            self.end()

    async def stream(
        self,
        events: Callable[[int, list[Chunk]], bytes],
        last: Callable[[], bytes],
        failed: Callable[[ApiError], bytes],
    ) -> AsyncGenerator[bytes, None]:
        """Bytes to send for each batch of chunks, then `last`; or what `failed` makes of an error."""
        try:
            while self.unfinished:
                found = await self.take()
                if not found:
                    yield KEEP_ALIVE
                    continue
                yield b"".join([events(index, chunks) for index, chunks in found.items()])
            yield last()
        except EdgeseekError as error:
            LOG.error("a stream ended early: %s", error)
            yield failed(api_error(error))
        finally:
            self.end()

    def end(self) -> None:
        """Cancel what still runs and give the model back; safe to call twice."""
        self._answers.cancel()
        self._lease.release()
        log_details(self._request, **self.tally.details())
