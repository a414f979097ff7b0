"""What goes wrong as HTTP: EdgeseekError and validation errors in OpenAI's error shape.

`{"error": {"message", "type", "param", "code"}}`. A message never holds a prompt or a key: of invalid input
only its place and the rule are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from edgeseek.errors import (
    ChatTemplateError,
    EdgeseekError,
    OverloadedError,
    PromptTooLongError,
    TokenizerError,
    UsageError,
)

#: The memory guard admits again after ten seconds without pressure.
RETRY_OUT_OF_MEMORY_S = 15
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An answer that is an error. `retry_after` is in seconds, for 429 and 503."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object that the client gets."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {
            "error": {"message": self.message, "type": kind, "param": self.param, "code": self.code},
        }

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with it."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status in (408, 413):
            headers["Connection"] = "close"
        return headers

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body, self.status, self.headers)


class ClientGoneError(Exception):
    """The client closed its connection; nobody reads an answer."""


def api_error(error: BaseException) -> ApiError:
    """The answer for an error that a request met. What is not the client's doing is 500."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, PromptTooLongError):
        return ApiError(400, str(error), param="messages", code="context_length_exceeded")
    if isinstance(error, (ChatTemplateError, TokenizerError, UsageError)):
        return ApiError(400, str(error))
    if isinstance(error, OverloadedError):
        # While memory is short nothing is admitted; what runs may be ended, the newest first.
        status = 503 if error.started else 429
        return ApiError(status, str(error), code="overloaded", retry_after=RETRY_OUT_OF_MEMORY_S)
    if isinstance(error, EdgeseekError):
        return ApiError(500, str(error), code="runtime_failure")
    return ApiError(500, "the server failed on this request; its log says more")


def place(location: Sequence[Any]) -> str:
    """A field's path as OpenAI writes it: messages[0].content.

    Pydantic adds the names of a union's members, which begin with a capital or hold a bracket; they are
    left out.
    """
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "int", "list") and not part[0].isupper():
            path += f".{part}" if path else part
    return path


def validation_error(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first of pydantic's errors, without the input that caused it."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "the body is no JSON: " + str(first.get("ctx", {}).get("error", "syntax error")))
    param = _place_of(first)
    # Of a union's members each says why it does not fit; who got furthest is most likely the one meant.
    inside = [error for error in errors if _place_of(error).startswith(param)]
    first = max(inside, key=lambda error: len(_place_of(error)))
    param = _place_of(first)
    if first["type"] == "extra_forbidden":
        return ApiError(
            400, f"{param} is not supported here; leave it out", param=param, code="unknown_parameter"
        )
    if not param:
        return ApiError(400, "the body is no JSON object; send one with Content-Type: application/json")
    reasons = dict.fromkeys(str(error["msg"]) for error in inside if _place_of(error) == param)
    return ApiError(400, f"{param}: {', or '.join(reasons)}", param=param, code="invalid_value")


def _place_of(error: Mapping[str, Any]) -> str:
    return place([part for part in error["loc"] if part not in ("body", "query")])


def install(app: FastAPI) -> None:
    """Make every error of `app` an answer in this shape."""

    @app.exception_handler(ApiError)
    async def api(_: Request, error: ApiError) -> JSONResponse:
        return error.response()

    @app.exception_handler(EdgeseekError)
    async def edgeseek(_: Request, error: EdgeseekError) -> JSONResponse:
        return api_error(error).response()

    @app.exception_handler(RequestValidationError)
    async def validation(_: Request, error: RequestValidationError) -> JSONResponse:
        return validation_error(error.errors()).response()

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        answer = ApiError(error.status_code, str(error.detail)).response()
        answer.headers.update(error.headers or {})
        return answer
