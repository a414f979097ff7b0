"""One line for each request: what was asked, how it ended, how long it took. Never text, never a key."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("edgeseek.server")
#: Where routes leave what the line should tell, as a dict.
DETAILS = "edgeseek.details"
#: Where the middleware leaves the request's id.
REQUEST_ID = "edgeseek.request_id"
#: What the log shows where the client went away before its answer.
CLIENT_GONE = 499


class RequestLogMiddleware:
    """Outermost: gives each request an id and logs it when its last byte is sent."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.perf_counter) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, status, sent = self._clock(), 0, False
        scope[DETAILS] = details = dict[str, Any]()
        scope[REQUEST_ID] = identifier = "req-" + secrets.token_hex(8)

        async def noting(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", identifier.encode())]
            elif message["type"] == "http.response.body":
                sent = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            LOG.exception("%s failed", identifier)
            raise
        finally:
            client = scope.get("client")
            extra = "".join(f" {key}={value}" for key, value in details.items())
            if status and not sent:
                extra += " aborted"
            # Monitors ask for it every few seconds.
            LOG.log(
                logging.DEBUG if scope["path"] == "/health" else logging.INFO,
                "%s %s %s %.3fs client=%s id=%s%s",
                scope["method"],
                _safe(scope["path"]),
                status or CLIENT_GONE,
                self._clock() - began,
                client[0] if client else "-",
                identifier,
                extra,
            )
        return None


def _safe(path: str) -> str:
    """A path that cannot forge a line of the log."""
    return path[:200].encode("unicode_escape").decode("ascii").replace(" ", "%20")
