"""GET /v1/models and /health."""

from __future__ import annotations

from typing import Literal

from edgeseek.server.schemas.common import Lenient


class Model(Lenient):
    """A model that can be asked."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "edgeseek"


class ModelList(Lenient):
    """All that are served: one."""

    object: Literal["list"] = "list"
    data: list[Model]


class Health(Lenient):
    """`status` is ok, loading, unloaded (loads on demand), stopping or failed."""

    status: Literal["ok", "loading", "unloaded", "stopping", "failed"]
    model: str
    #: While loading: what is done now, and how much of it.
    stage: str | None = None
    done: int | None = None
    total: int | None = None
    #: Requests that run or wait.
    active: int
    context: int | None = None
