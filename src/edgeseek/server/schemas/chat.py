"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from edgeseek.server.schemas.common import (
    MAX_TOP_LOGPROBS,
    FinishReason,
    Lenient,
    SamplingFields,
    Strict,
    Usage,
)

Role = Literal["system", "developer", "user", "assistant", "tool"]
Name = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_.-]+$")]


class TextPart(Strict):
    """A part of a message; only texts can be read here."""

    type: Literal["text"]
    text: str


class CalledFunction(Strict):
    """A function and its arguments, which are JSON in a string."""

    name: str
    arguments: str


class ToolCall(Strict):
    """A call that the assistant made earlier."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Strict):
    """A turn of the conversation. What clients echo of an answer may be there as null."""

    role: Role
    content: str | list[TextPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None
    tool_call_id: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None

    @model_validator(mode="after")
    def _has_something_to_say(self) -> Message:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError("content is missing")
        if self.role != "assistant" and (self.tool_calls or self.reasoning_content is not None):
            raise ValueError("only an assistant's message has tool_calls or reasoning_content")
        if (self.tool_call_id is not None) != (self.role == "tool"):
            raise ValueError("tool_call_id belongs to a message of the role tool, and only there")
        return self

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates take it; a developer's is a system message to them."""
        message: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": self.text,
        }
        for name in ("name", "reasoning_content", "tool_call_id"):
            if getattr(self, name) is not None:
                message[name] = getattr(self, name)
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        return message

    @property
    def text(self) -> str:
        """The content, its parts joined."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class FunctionDefinition(Strict):
    """What a function does and takes; `parameters` is a JSON schema."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict):
    """A function that the model may ask for."""

    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(Strict):
    """The function that must be called."""

    name: Name


class NamedTool(Strict):
    """Asks for one tool."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Strict):
    """The schema that an answer must follow."""

    name: Name
    description: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


class TextFormat(Strict):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(Strict):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(Strict):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class ChatCompletionRequest(SamplingFields):
    """A conversation to be continued."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=10_000)]
    max_completion_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    #: Variables for the chat template, such as {"enable_thinking": false}.
    chat_template_kwargs: Annotated[dict[str, Any], Field(max_length=32)] | None = None
    #: Accepted where they ask for nothing that we lack.
    store: Literal[False] | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    service_tier: Literal["auto", "default"] | None = None
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> ChatCompletionRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("max_tokens is the old name of max_completion_tokens; give one of them")
        if self.tool_choice not in (None, "none") and not self.tools:
            raise ValueError("tool_choice needs tools")
        return self


class TopLogprob(Lenient):
    """An alternative. `token` is for reading; `bytes` are exact, also inside a character."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """A token of the answer."""

    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(Lenient):
    """All tokens of an answer, its reasoning included."""

    content: list[TokenLogprob]
    refusal: None = None


class AnswerMessage(Lenient):
    """The assistant's turn."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: None = None


class Choice(Lenient):
    """One of `n` answers."""

    index: int
    message: AnswerMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(Lenient):
    """The answer, unless it is streamed."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: Usage
