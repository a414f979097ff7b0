"""On real sockets: clients that vanish, dawdle or send too much cost nobody else anything."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from edgeseek.server.protocol import MAX_HEADER, BoundedProtocol
from tests.unit.server.local import InThread, in_thread, post, wait_until
from tests.unit.server.served import NAME, Loader


class Gate:
    """Lets the backend run a step for each permit."""

    def __init__(self, host: Any) -> None:
        self.steps = 0
        self._permits = threading.Semaphore(0)
        backend = host.llm.backend
        self._forward = backend.forward
        backend.forward = self._step

    def _step(self, batch: Any) -> Any:
        self._permits.acquire()
        self.steps += 1
        return self._forward(batch)

    def permit(self, count: int) -> None:
        self._permits.release(count)


def raw_request(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps({"model": NAME, **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return head.encode() + f"Content-Length: {len(content)}\r\n\r\n".encode() + content


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_vanishes_ends_its_request_within_two_steps(load: Loader, stream: bool) -> None:
    with in_thread(load) as server:
        gate = Gate(server.host)
        client = server.connect()
        ask = {"prompt": "the model", "max_tokens": 400, "ignore_eos": True, "stream": stream}
        client.sendall(raw_request("/v1/completions", ask))
        gate.permit(3)
        if stream:
            received = b""
            while b"data: " not in received:
                received += client.recv(65536)
        wait_until(lambda: gate.steps == 3)
        client.close()
        wait_until(lambda: server.host.active == 0)
        # The step under way ends; none follows, though as many as they like might.
        gate.permit(500)
        assert post(server.url, {"prompt": "x", "max_tokens": 2, "ignore_eos": True}).status_code == 200
        assert gate.steps <= 3 + 1 + 2


def test_one_of_two_streams_may_vanish_and_the_other_is_as_if_alone(load: Loader) -> None:
    ask = {"prompt": "class model", "max_tokens": 60, "temperature": 1.0, "seed": 5, "ignore_eos": True}
    with in_thread(load) as server:
        alone = post(server.url, ask).json()["choices"]
        client = server.connect()
        client.sendall(
            raw_request(
                "/v1/completions", {"prompt": "a", "max_tokens": 400, "stream": True, "ignore_eos": True}
            )
        )
        assert client.recv(100)
        client.close()
        assert post(server.url, ask).json()["choices"] == alone
        wait_until(lambda: server.host.active == 0)


def test_of_many_clients_a_third_vanish_and_the_others_get_what_they_get_alone(load: Loader) -> None:
    def ask(i: int) -> dict[str, Any]:
        prompt = f"def {i % 7} model " * (1 + i % 5)
        return {"prompt": prompt, "max_tokens": 40, "seed": i, "temperature": 1.0, "ignore_eos": True}

    with in_thread(load, max_queue=64) as server:
        texts: dict[int, str] = {}
        engine = server.host.llm.engine  # type: ignore[union-attr]

        def free() -> tuple[int, int]:
            return engine.between_steps(
                lambda scheduler, _: (scheduler.drop_retained() * 0, scheduler.blocks.available)
            )

        blocks = free()

        def client(i: int) -> None:
            if i % 3:
                texts[i] = post(server.url, ask(i)).json()["choices"][0]["text"]
                return
            with server.connect() as sender:
                sender.sendall(raw_request("/v1/completions", {**ask(i), "stream": bool(i % 2)}))
                if i % 2:
                    sender.recv(100 * i)

        clients = [threading.Thread(target=client, args=(i,)) for i in range(48)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        wait_until(lambda: server.host.active == 0)
        assert len(texts) == 32
        assert texts == {i: post(server.url, ask(i)).json()["choices"][0]["text"] for i in texts}
        assert free() == blocks


class Hasty(BoundedProtocol):
    header_timeout_s = 0.3
    body_timeout_s = 0.3


def closed_by_server(client: socket.socket) -> bytes:
    """What came before the server closed the connection."""
    received = b""
    with client:
        try:
            while part := client.recv(65536):
                received += part
        except ConnectionResetError:
            pass
    return received


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /v1/comple",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_a_client_that_dawdles_is_disconnected(load: Loader, sent: bytes) -> None:
    with in_thread(load, Hasty) as server:
        client = server.connect()
        if sent:
            client.sendall(sent)
        assert closed_by_server(client) == b""
        assert post(server.url, {"prompt": "x", "max_tokens": 1}).status_code == 200


def test_drip_by_drip_is_too_slow_as_well(load: Loader) -> None:
    with in_thread(load, Hasty) as server:
        client = server.connect()
        stop = threading.Event()

        def drip() -> None:
            try:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
                while not stop.wait(0.02):
                    client.sendall(b"X-A: b\r\n")
            except OSError:
                return

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert closed_by_server(client) == b""
        stop.set()
        dripping.join()


def test_an_answer_may_take_longer_than_a_request(load: Loader) -> None:
    with in_thread(load, Hasty) as server:
        gate = Gate(server.host)
        timer = threading.Timer(0.6, gate.permit, [100])
        timer.start()
        assert post(server.url, {"prompt": "x", "max_tokens": 3}).status_code == 200
        timer.join()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Big: " + b"a" * (MAX_HEADER + 70_000),
        b"GET /" + b"a" * 2_000_000,
        b"GET /health HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(100_000)),
    ],
    ids=["one header", "path", "many headers"],
)
def test_giant_headers_are_refused(load: Loader, head: bytes) -> None:
    with in_thread(load) as server:
        client = server.connect()

        def send() -> None:
            try:
                client.sendall(head)
            except OSError:
                return

        sending = threading.Thread(target=send)
        sending.start()
        received = closed_by_server(client)
        sending.join()
        # A client that is still sending may find the connection reset before it reads the answer.
        assert not received or received.startswith(b"HTTP/1.1 431")
        assert post(server.url, {"prompt": "x", "max_tokens": 1}).status_code == 200


def test_what_is_no_http_is_refused(load: Loader) -> None:
    with in_thread(load) as server:
        client = server.connect()
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert closed_by_server(client).startswith(b"HTTP/1.1 400")
        assert alive(server)


def test_two_requests_in_one_packet_are_both_answered(load: Loader) -> None:
    with in_thread(load) as server:
        client = server.connect()
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        received = b""
        while received.count(b'"status":"ok"') < 2:
            received += client.recv(65536)
        client.close()


def alive(server: InThread) -> bool:
    """Whether the server answers."""
    return post(server.url, {"prompt": "x", "max_tokens": 1}).status_code == 200
