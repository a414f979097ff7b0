"""A tiny model behind the application, asked in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from edgeseek.llm import LLM
from edgeseek.server.app import create_app
from edgeseek.server.config import ServerConfig
from edgeseek.server.model_host import LoadProgress, ModelHost
from edgeseek.settings import Settings

NAME = "tiny"


@dataclass
class Served:
    """A running application."""

    app: FastAPI
    host: ModelHost
    client: httpx.AsyncClient

    @property
    def llm(self) -> LLM:
        """The loaded model."""
        assert self.host.llm is not None
        return self.host.llm

    async def chat(self, **changes: Any) -> httpx.Response:
        """POST a short conversation."""
        body = {
            "model": NAME,
            "messages": [{"role": "user", "content": "return the model"}],
            "max_tokens": 8,
            **changes,
        }
        return await self.client.post("/v1/chat/completions", json=body)

    async def complete(self, prompt: Any = "the model", **changes: Any) -> httpx.Response:
        """POST a short text."""
        body = {"model": NAME, "prompt": prompt, "max_tokens": 8, **changes}
        return await self.client.post("/v1/completions", json=body)


class Loader:
    """Loads the package of a folder; waits for `gate` first where there is one."""

    def __init__(self, package: Path, settings: Settings, **options: Any) -> None:
        self.package, self.settings, self.options = package, settings, options

    def __call__(self, progress: LoadProgress) -> LLM:
        return LLM.load(self.package, settings=self.settings, progress=progress, **self.options)


@contextlib.asynccontextmanager
async def served(load: Any, *, wait: bool = True, **options: Any) -> AsyncIterator[Served]:
    """The application with this loader; `options` are ServerConfig's."""
    config = ServerConfig(model=NAME, name=NAME, **options)
    host = ModelHost(load, name=NAME, max_queue=config.max_queue, idle_unload=config.idle_unload)
    app = create_app(config, host)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            while wait and host.state == "loading":
                await asyncio.sleep(0.01)
            yield Served(app, host, client)


def events(response: httpx.Response) -> list[Any]:
    """The data of all events of a stream, JSON decoded but for the last, which must be [DONE]."""
    parts = [part for part in response.text.split("\n\n") if part]
    assert all(part.startswith("data: ") and "\n" not in part for part in parts)
    assert parts[-1] == "data: [DONE]"
    return [json.loads(part[len("data: ") :]) for part in parts[:-1]]


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of a response, which must have OpenAI's shape."""
    body = response.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    return error
