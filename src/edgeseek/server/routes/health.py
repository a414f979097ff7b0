"""GET /health: whether the model can be asked; needs no key."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from edgeseek.server.context import Context
from edgeseek.server.schemas.models import Health

router = APIRouter(tags=["health"])
OPEN_PATHS = ("/health",)


@router.get(
    "/health", response_model=Health, responses={503: {"model": Health, "description": "loading or stopping"}}
)
async def health(context: Context) -> Response:
    """200 while requests are answered, 503 while the model loads for the first time or the server stops."""
    host = context.host
    loading = host.state == "loading"
    report = Health(
        status="ok" if host.state == "ready" else host.state,
        model=host.name,
        stage=host.progress.stage if loading else None,
        done=host.progress.done if loading else None,
        total=host.progress.total if loading else None,
        active=host.active,
        context=None if host.llm is None else host.llm.context,
    )
    up = host.state in ("ready", "unloaded") or (loading and host.loads > 0)
    return JSONResponse(report.model_dump(exclude_none=True), 200 if up else 503)
