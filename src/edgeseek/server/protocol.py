"""uvicorn's HTTP protocol with bounds on what a client may send and how long it may take.

uvicorn's parser puts no bound on headers and gives a connection that sends nothing all the time it wants.
Bodies are bounded in `limits`, since only a route's answer can say so.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Bytes of a request line and its headers.
MAX_HEADER = 32 << 10
#: Seconds from the connection, or the first byte of a later request, to the end of the headers.
HEADER_TIMEOUT_S = 10.0
#: Seconds from there to the end of the body.
BODY_TIMEOUT_S = 60.0


class BoundedProtocol(HttpToolsProtocol):
    """Answers 431 to headers that are too large, and closes connections that dawdle."""

    header_timeout_s = HEADER_TIMEOUT_S
    body_timeout_s = BODY_TIMEOUT_S

    _deadline: asyncio.TimerHandle | None = None
    _in_headers = False
    _header_bytes = 0
    _refused = False

    def connection_made(self, transport: Any) -> None:
        """A client connected."""
        super().connection_made(transport)
        self._await_end(self.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._no_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._refused:
            return
        if self._is_idle() and not self._in_headers:
            self._in_headers, self._header_bytes = True, 0
            if self._deadline is None:
                self._await_end(self.header_timeout_s)
        if self._in_headers:
            self._header_bytes += len(data)
            # A request in one piece may end its headers in it, so the parser looks first at what is small.
            if self._header_bytes > MAX_HEADER and b"\r\n\r\n" not in data[: MAX_HEADER + 4]:
                self._refuse()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The request line and headers are whole."""
        self._in_headers = False
        self._await_end(self.body_timeout_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is whole."""
        self._no_deadline()
        super().on_message_complete()

    def _is_idle(self) -> bool:
        """Whether no request is being answered, so that what comes begins one."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def _refuse(self) -> None:
        self._refused = True
        self._no_deadline()
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        self.transport.close()

    def _await_end(self, seconds: float) -> None:
        self._no_deadline()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _no_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._refused = True
        self.transport.abort()
