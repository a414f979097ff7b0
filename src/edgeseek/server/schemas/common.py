"""What several bodies share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

#: Answers to one request, at most.
MAX_ANSWERS = 16
MAX_STOPS = 32
MAX_BIASES = 1024
#: Alternatives to each token, at most.
MAX_TOP_LOGPROBS = 20


class Strict(BaseModel):
    """Refuses fields that it does not know, numbers that are none, and numbers in quotes."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True, protected_namespaces=())


class Lenient(BaseModel):
    """For what we send: OpenAI's clients ignore fields that they do not know."""

    model_config = ConfigDict(protected_namespaces=())


StopText = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Stops = Annotated[list[StopText], Field(max_length=MAX_STOPS)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=500)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]


class StreamOptions(Strict):
    """`include_usage` adds an event with the totals before `[DONE]`."""

    include_usage: bool | None = None


class SamplingFields(Strict):
    """How tokens are drawn; what is absent or null is the model's own default."""

    model: ModelName
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.001, le=1000)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=MAX_BIASES)] | None
    ) = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    stop: StopText | Stops | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOPS)] | None = None
    ignore_eos: bool | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    #: Names of the caller's, which change nothing here.
    user: Annotated[str, StringConstraints(max_length=1000)] | None = None

    @field_validator("logit_bias")
    @classmethod
    def _token_ids(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        for key in value or ():
            if not (key.isascii() and key.isdigit() and len(key) <= 10):
                raise ValueError("keys must be token ids, in digits")
        return value

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> SamplingFields:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is for streams; set stream to true or leave it out")
        return self


class PromptTokensDetails(Lenient):
    """Of the prompt's tokens, those whose KV was there already."""

    cached_tokens: int


class CompletionTokensDetails(Lenient):
    """Of the answer's tokens, those before the closing tag of its reasoning."""

    reasoning_tokens: int


class Usage(Lenient):
    """Counts in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class ErrorDetail(Lenient):
    """What went wrong; `param` is the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Lenient):
    """OpenAI's shape of an error."""

    error: ErrorDetail


#: For a route's `responses`: what any of them may answer instead.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": description}
    for status, description in (
        (400, "a field is wrong, unknown or not supported, or the prompt does not fit"),
        (401, "the API key is missing or unknown"),
        (404, "no such model"),
        (413, "the body is too large"),
        (429, "the queue is full or memory short; Retry-After says when to come back"),
        (500, "the engine failed"),
        (503, "the model is loading or the server is stopping; Retry-After says when to come back"),
    )
}
FinishReason = Literal["stop", "length", "tool_calls"]
