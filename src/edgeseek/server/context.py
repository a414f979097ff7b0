"""What routes work with: the model host and the way to run answers on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from edgeseek.server.auth import SALT
from edgeseek.server.config import ServerConfig
from edgeseek.server.generation import Starter
from edgeseek.server.model_host import ModelHost
from edgeseek.server.request_log import DETAILS


@dataclass(frozen=True)
class ServerContext:
    """Shared by all requests of one server."""

    config: ServerConfig
    host: ModelHost
    starter: Starter
    #: Unix time at which the server started.
    started: int


async def _context(request: Request) -> ServerContext:
    context: ServerContext = request.app.state.context
    return context


#: Annotate a route's parameter with it.
Context = Annotated[ServerContext, Depends(_context)]


def salt_of_request(request: Request) -> bytes:
    """The salt of the key that the request came with."""
    salt: bytes = request.scope.get(SALT, b"")
    return salt


def log_details(request: Request, **details: Any) -> None:
    """Add figures to the request's line in the log; never text of a prompt or an answer."""
    request.scope.setdefault(DETAILS, {}).update(details)
