"""One answer of a chat as it grows: text → reasoning and content → tool calls, with its log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from edgeseek.engine import Chunk
from edgeseek.errors import RuntimeFailure
from edgeseek.server.reasoning import ReasoningSplitter
from edgeseek.tokenizer import Tokenizer


@dataclass
class Delta:
    """What became certain with some chunks; `tool_calls` are OpenAI's objects with an `index` each."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def message(self) -> dict[str, Any]:
        """The `delta` object of an event."""
        found: dict[str, Any] = {}
        if self.reasoning:
            found["reasoning_content"] = self.reasoning
        if self.content:
            found["content"] = self.content
        if self.tool_calls:
            found["tool_calls"] = self.tool_calls
        return found


class ToolCallReader(Protocol):
    """Finds calls in a model's content; what is no part of one passes through."""

    def push(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """Add text; return content, and calls (or parts of one) in the shape of a stream's delta."""
        ...

    def finish(self) -> tuple[str, list[dict[str, Any]]]:
        """The rest at the end."""
        ...


class ChatAnswer:
    """Turns the chunks of one answer into deltas, and keeps their sum."""

    def __init__(
        self, tokenizer: Tokenizer, *, inside_reasoning: bool, tool_calls: ToolCallReader | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._splitter = ReasoningSplitter(inside=inside_reasoning)
        self._tools = tool_calls
        self.content = ""
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        self.logprobs: list[dict[str, Any]] = []
        self.reasoning_tokens = 0
        self.finish_reason: str | None = None
        #: Whether anything of it was sent.
        self.begun = False

    def take(self, chunks: Sequence[Chunk]) -> Delta:
        """Add chunks; return what they made certain. Raises RuntimeFailure for one that was cancelled."""
        delta = Delta()
        for chunk in chunks:
            reasoning, content = self._splitter.push(chunk.text)
            self._add(delta, reasoning, content)
            if self._splitter.is_reasoning:
                self.reasoning_tokens += len(chunk.token_ids)
            delta.logprobs += chat_logprobs(self._tokenizer, chunk)
            if chunk.finish_reason is not None:
                self._add(delta, *self._splitter.finish())
                if self._tools is not None:
                    text, calls = self._tools.finish()
                    delta.content += text
                    delta.tool_calls += calls
                self.finish_reason = finish_reason(chunk)
        self.content += delta.content
        self.reasoning += delta.reasoning
        self.calls += delta.tool_calls
        self.logprobs += delta.logprobs
        if self.finish_reason == "stop" and self.calls:
            self.finish_reason = "tool_calls"
        return delta

    def message(self) -> dict[str, Any]:
        """The whole turn, once it ended."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = joined_calls(self.calls)
            message["content"] = self.content or None
        return message

    def _add(self, delta: Delta, reasoning: str, content: str) -> None:
        delta.reasoning += reasoning
        if self._tools is not None and content:
            content, calls = self._tools.push(content)
            delta.tool_calls += calls
        delta.content += content


def joined_calls(deltas: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls put together from a stream's deltas, in the order of their index, which is left out."""
    calls: dict[int, dict[str, Any]] = {}
    for part in deltas:
        known = calls.get(part["index"])
        if known is None:
            function = dict(part["function"])
            calls[part["index"]] = {"id": part["id"], "type": "function", "function": function}
        else:
            known["function"]["arguments"] += part["function"].get("arguments", "")
    return [calls[index] for index in sorted(calls)]


def finish_reason(chunk: Chunk) -> str:
    """The reason of a last chunk. Raises RuntimeFailure where the server itself cancelled it."""
    if chunk.finish_reason in (None, "cancelled"):
        raise RuntimeFailure("the answer was cut off because the server is stopping; ask again")
    return str(chunk.finish_reason)


def chat_logprobs(tokenizer: Tokenizer, chunk: Chunk) -> list[dict[str, Any]]:
    """The `content` items of a chunk's log-probabilities."""
    return [
        {
            **_token(tokenizer, found.token_id, found.logprob),
            "top_logprobs": [_token(tokenizer, token, logprob) for token, logprob in found.top],
        }
        for found in chunk.logprobs
    ]


def _token(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    return {
        "token": data.decode("utf-8", "replace"),
        # JSON has no infinity; this is what OpenAI sends for what cannot be.
        "logprob": max(logprob, -9999.0),
        "bytes": list(data),
    }
