"""Server-sent events, and noticing that a client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgeseek.server.errors import ClientGoneError

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
#: A comment, which clients skip; shows proxies that the stream lives, and us whether the client does.
KEEP_ALIVE = b": keep-alive\n\n"
#: Seconds that a client may leave what was sent unread.
WRITE_TIMEOUT_S = 60.0


def event(data: str) -> bytes:
    """One event; `data` must be one line, as JSON is."""
    return f"data: {data}\n\n".encode()


async def disconnected(receive: Receive) -> None:
    """Wait until the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Sends what a generator yields. The generator is closed as soon as the client is gone."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        end: Callable[[], None],
        *,
        media_type: str | None = None,
    ) -> None:
        """`end` is called at the end, also where the generator was never begun."""
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(media_type=media_type, headers=headers)
        del self.headers["content-length"]
        self._events = events
        self._end = end

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        sending = asyncio.ensure_future(self._send(send))
        watching = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)
            await self._events.aclose()
            self._end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        async for data in self._events:
            # A timer costs less than a task, which wait_for is before Python 3.12.
            timer = loop.call_later(WRITE_TIMEOUT_S, task.cancel) if task is not None else None
            await send({"type": "http.response.body", "body": data, "more_body": True})
            if timer is not None:
                timer.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes away: then raises ClientGoneError."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGoneError
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
