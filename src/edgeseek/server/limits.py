"""What a request may be: bytes of its body and depth of its JSON. Read here, before anything parses it."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgeseek.server.errors import ApiError, ClientGoneError

#: Arrays and objects inside each other.
MAX_NESTING = 64
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = b"[]{}"
_OTHERS = bytes(set(range(256)) - set(_BRACKETS))


def nests_deeper(body: bytes, depth: int) -> bool:
    """Whether arrays and objects in `body` nest deeper than `depth`; of what is no JSON, anything.

    Takes out innermost pairs, a level at a time, so that the work is C's.
    """
    left = _STRING.sub(b"", body).translate(None, _OTHERS)
    for _ in range(depth):
        if not left:
            return False
        # A pair in a pair goes in the same round, hence by way of a mark.
        before, left = left, left.replace(b"[]", b".").replace(b"{}", b".").replace(b".", b"")
        if len(left) == len(before):
            return True
    return bool(left)


class LimitsMiddleware:
    """Reads a request's body up to a limit, looks at its nesting, and hands it on whole."""

    def __init__(self, app: ASGIApp, max_body: int) -> None:
        self._app = app
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            body = await self._read(scope, receive)
        except ApiError as error:
            return await error.response()(scope, receive, send)
        except ClientGoneError:
            return None
        delivered = False

        async def replay() -> Message:
            nonlocal delivered
            if delivered:
                return await receive()
            delivered = True
            return {"type": "http.request", "body": body, "more_body": False}

        return await self._app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        too_large = ApiError(
            413, f"the body is larger than {self._max_body} bytes; send less, or raise --max-body"
        )
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value[:20]) > self._max_body):
                raise too_large
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            size += len(part)
            if size > self._max_body:
                raise too_large
            parts.append(part)
            more = message.get("more_body", False)
        body = b"".join(parts)
        if nests_deeper(body, MAX_NESTING):
            raise ApiError(400, f"the body nests deeper than {MAX_NESTING} levels, or is no JSON")
        return body
