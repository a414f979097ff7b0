"""Only known keys are let in, whatever was wrong is not repeated, and prefixes stay within a key."""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path

import pytest

from edgeseek.errors import UsageError
from edgeseek.server import auth
from edgeseek.server.auth import Keyring, read_keys, salt_of
from edgeseek.server.config import ServerConfig
from tests.unit.server.served import Loader, error_of, served


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_only_known_keys_are_let_in(load: Loader) -> None:
    async def run() -> None:
        async with served(load, api_keys=("sk-one", "sk-two")) as s:
            body = {"model": "tiny", "prompt": "x", "max_tokens": 1}
            for key in ("sk-one", "sk-two"):
                found = await s.client.post("/v1/completions", json=body, headers=bearer(key))
                assert found.status_code == 200
            for headers in ({}, bearer("sk-on"), bearer("sk-one "[:-2]), {"Authorization": "Basic sk-one"}):
                for path in ("/v1/completions", "/v1/models", "/openapi.json", "/nowhere"):
                    found = await s.client.post(path, json=body, headers=headers)
                    assert found.status_code == 401
                    assert found.headers["www-authenticate"] == "Bearer"
                    assert "sk-" not in error_of(found)["message"]
            assert (await s.client.get("/health")).status_code == 200

    asyncio.run(run())


def test_a_prefix_is_found_again_under_its_own_key_only(load: Loader) -> None:
    async def run() -> None:
        async with served(load, api_keys=("sk-one", "sk-two")) as s:
            body = {
                "model": "tiny",
                "prompt": "the model is " * 20,
                "max_tokens": 4,
                "seed": 1,
                "logprobs": 1,
            }
            answers = [
                (await s.client.post("/v1/completions", json=body, headers=bearer(key))).json()
                for key in ("sk-one", "sk-two", "sk-one", "sk-two")
            ]
            prompt = answers[0]["usage"]["prompt_tokens"]
            cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
            assert cached == [0, 0, prompt - 1, prompt - 1]
            assert all(answer["choices"] == answers[0]["choices"] for answer in answers)

    asyncio.run(run())


def test_every_known_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return hmac.compare_digest(a, b)

    class Recording:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(auth, "hmac", Recording)
    keyring = Keyring(["a", "bb", "ccc"])
    for key in (b"a", b"ccc", b"x"):
        compared.clear()
        assert keyring.admits(key) is (key != b"x")
        assert len(compared) == 3
        assert {len(part) for pair in compared for part in pair} == {32}


def test_a_salt_names_a_key_without_telling_it() -> None:
    assert salt_of(b"") == b""
    assert salt_of(b"sk-one") == salt_of(b"sk-one") != salt_of(b"sk-two")
    assert b"sk-one" not in salt_of(b"sk-one")


def test_keys_come_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# first\none\n\n  two  \n")
    assert read_keys(file, ("three", "one")) == ("three", "one", "two")
    assert read_keys(None, ()) == ()
    file.write_text("# nothing\n")
    with pytest.raises(UsageError, match="holds no key"):
        read_keys(file, ())
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_keys(tmp_path / "missing", ())
    file.write_bytes(b"sk-secret\xff")
    with pytest.raises(UsageError, match="UTF-8") as caught:
        read_keys(file, ())
    assert "secret" not in str(caught.value)


def test_keys_are_in_no_representation() -> None:
    assert "sk-one" not in repr(ServerConfig(model="m", api_keys=("sk-one",)))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    assert ServerConfig(model="m", host=host).host == host


def test_beyond_loopback_a_key_or_insecure_is_needed() -> None:
    with pytest.raises(UsageError, match="--insecure"):
        ServerConfig(model="m", host="0.0.0.0")
    ServerConfig(model="m", host="0.0.0.0", insecure=True)
    ServerConfig(model="m", host="0.0.0.0", api_keys=("k",))
