"""An HTTP server on the loopback that lives as long as a `with` block and records what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    """One request; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Reply:
    """An answer. With `cut_after`, the connection breaks after that many bytes of the body."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_after: int | None = None


@dataclass
class Server:
    """A running server; `requests` grows as it is asked."""

    url: str
    requests: list[Request]


@contextmanager
def serve(answer: Callable[[Request], Reply]) -> Iterator[Server]:
    """Answer GET and HEAD with `answer` until the block ends."""
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers)
            requests.append(request)
            reply = answer(request)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if request.method == "HEAD":
                return
            if reply.cut_after is None:
                self.wfile.write(reply.body)
            else:
                self.wfile.write(reply.body[: reply.cut_after])
                self.wfile.flush()
                self.close_connection = True

        do_GET = do_HEAD = handle_request

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{server.server_address[1]}", requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
