"""GET /v1/models."""

from __future__ import annotations

from fastapi import APIRouter

from edgeseek.server.context import Context
from edgeseek.server.errors import ApiError
from edgeseek.server.schemas.common import ERRORS
from edgeseek.server.schemas.models import Model, ModelList

router = APIRouter(tags=["models"], responses={401: ERRORS[401]})


@router.get("/v1/models")
async def list_models(context: Context) -> ModelList:
    """The model that is served."""
    return ModelList(data=[Model(id=context.host.name, created=context.started)])


@router.get("/v1/models/{model:path}", responses={404: ERRORS[404]})
async def get_model(model: str, context: Context) -> Model:
    """One model by its name."""
    if model not in context.host.aliases:
        raise ApiError(
            404, f"the model is not served here; ask for {context.host.name!r}", code="model_not_found"
        )
    return Model(id=model, created=context.started)
