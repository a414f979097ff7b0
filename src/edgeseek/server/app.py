"""The application: middlewares, errors and every route file, around a model host that is given."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from edgeseek import __version__
from edgeseek.server import errors, routes
from edgeseek.server.auth import AuthMiddleware, Keyring
from edgeseek.server.config import ServerConfig
from edgeseek.server.context import ServerContext
from edgeseek.server.generation import Bridge, Starter
from edgeseek.server.limits import LimitsMiddleware
from edgeseek.server.model_host import ModelHost
from edgeseek.server.request_log import RequestLogMiddleware


def create_app(config: ServerConfig, host: ModelHost) -> FastAPI:
    """The ASGI application; loading begins with its lifespan and the model is released at its end."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        starter = Starter(Bridge(asyncio.get_running_loop()))
        app.state.context = ServerContext(config, host, starter, int(time.time()))
        host.start()
        try:
            yield
        finally:
            await host.close()
            starter.close()

    app = FastAPI(
        title="edgeseek",
        version=__version__,
        summary="A local language model with the API of OpenAI.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    errors.install(app)
    open_paths = routes.include_all(app)
    # The last one added is the first one called.
    app.add_middleware(LimitsMiddleware, max_body=config.max_body)
    app.add_middleware(AuthMiddleware, keyring=Keyring(config.api_keys), open_paths=open_paths)
    if config.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(RequestLogMiddleware)
    described = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _describe_errors(described())
        return described()

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _describe_errors(document: dict[str, Any]) -> None:
    """Take out FastAPI's own 422, which is never sent, and the schemas that only it uses."""
    for path in document.get("paths", {}).values():
        for operation in path.values():
            operation.get("responses", {}).pop("422", None)
    schemas = document.get("components", {}).get("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
