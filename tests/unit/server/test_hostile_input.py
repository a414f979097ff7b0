"""Whatever a client sends, it gets a 4xx without secrets or its own text, and the next one is served."""

from __future__ import annotations

import asyncio
import json

import pytest

from edgeseek.server.limits import nests_deeper
from tests.unit.server.served import Loader, error_of, served

JSON = {"content-type": "application/json"}
CHAT = b'{"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": %s}]}'

BODIES = {
    "nothing": b"",
    "half": b'{"model": "tiny", "messages": [',
    "no object": b"[1, 2]",
    "a number": b"17",
    "null": b"null",
    "no JSON": b"hello",
    "no UTF-8": CHAT % b'"\xff\xfe"',
    "a lone surrogate": CHAT % b'"\\ud800"',
    "not a number": b'{"model": "tiny", "temperature": NaN, "messages": [{"role": "user", "content": "x"}]}',
    "infinity": b'{"model": "tiny", "temperature": 1e999, "messages": [{"role": "user", "content": "x"}]}',
    "a long number": b'{"model": "tiny", "seed": ' + b"9" * 5000 + b', "messages": []}',
    "deep arrays": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
    "deep and broken": b"[" * 100_000,
    "long prompt": CHAT % json.dumps("word " * 200_000).encode(),
    "null bytes": b"\x00" * 1000,
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_bad_bodies_are_4xx_and_the_server_goes_on(load: Loader, name: str, path: str) -> None:
    async def run() -> None:
        async with served(load) as s:
            response = await s.client.post(path, content=BODIES[name], headers=JSON)
            assert 400 <= response.status_code < 500, response.text
            message = error_of(response)["message"]
            assert len(message) < 300
            assert "word" not in message
            assert (await s.chat()).status_code == 200
            assert s.host.active == 0

    asyncio.run(run())


def test_ten_megabytes_are_413_without_being_kept(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            response = await s.client.post("/v1/completions", content=b"x" * 10_000_000, headers=JSON)
            assert response.status_code == 413
            assert response.headers["connection"] == "close"
            sent = 0

            async def endless():
                nonlocal sent
                while sent < 100_000_000:
                    sent += 65536
                    yield b"x" * 65536

            response = await s.client.post("/v1/completions", content=endless(), headers=JSON)
            assert response.status_code == 413
            assert error_of(response)["message"].startswith("the body is larger than 4194304 bytes")
            assert sent <= (4 << 20) + 65536
            assert (await s.chat()).status_code == 200

    asyncio.run(run())


@pytest.mark.parametrize("length", ["-1", "1e9", "9" * 100, "ten"])
def test_an_odd_content_length_is_refused(load: Loader, length: str) -> None:
    async def run() -> None:
        async with served(load) as s:
            headers = {**JSON, "content-length": length}
            response = await s.client.post("/v1/completions", content=b"{}", headers=headers)
            assert response.status_code == 413

    asyncio.run(run())


def test_other_paths_and_methods_are_refused_in_the_same_shape(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            assert (await s.client.get("/v1/chat/completions")).status_code == 405
            assert error_of(await s.client.get("/v1/chat/completions"))["message"]
            assert error_of(await s.client.get("/../../etc/passwd"))["type"] == "not_found_error"
            assert (await s.client.post("/v1/completions", content=b"a=b")).status_code == 400

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        (b"1", 0),
        (b"[]", 1),
        (b'{"a": [1, {"b": []}], "c": {}}', 4),
        (b'["[[[[", "\\"[[["]', 1),
        (b"[" * 50 + b"]" * 50, 50),
        (b"[[],[],{}]" * 3, 2),
    ],
)
def test_nesting_is_counted_exactly(body: bytes, depth: int) -> None:
    assert not nests_deeper(body, depth)
    assert depth == 0 or nests_deeper(body, depth - 1)
