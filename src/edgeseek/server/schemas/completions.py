"""POST /v1/completions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgeseek.server.schemas.common import (
    FinishReason,
    Lenient,
    SamplingFields,
    StreamOptions,
    TokenId,
    Usage,
)

MAX_PROMPTS = 16
Ids = Annotated[list[TokenId], Field(min_length=1)]

__all__ = ["MAX_PROMPTS", "Completion", "CompletionRequest", "StreamOptions"]


class CompletionRequest(SamplingFields):
    """Texts, or token ids, to be continued as they are."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MAX_PROMPTS)]
    )
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    #: Accepted where they ask for nothing that we lack.
    echo: Literal[False] | None = None
    suffix: None = None
    best_of: Literal[1] | None = None


class CompletionLogprobs(Lenient):
    """Parallel lists, one item a token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Lenient):
    """One of `n` answers to one of the prompts; `index` counts prompt by prompt."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class Completion(Lenient):
    """The answer, unless it is streamed."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage
