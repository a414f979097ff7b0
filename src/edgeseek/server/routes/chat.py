"""POST /v1/chat/completions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from edgeseek.engine import Chunk
from edgeseek.errors import ChatTemplateError, UsageError
from edgeseek.server.choices import ChatAnswer
from edgeseek.server.context import Context
from edgeseek.server.errors import ApiError
from edgeseek.server.generation import Job
from edgeseek.server.reasoning import prompt_opens_reasoning
from edgeseek.server.running import Run
from edgeseek.server.sampling import sampling_params
from edgeseek.server.schemas.chat import ChatCompletion, ChatCompletionRequest
from edgeseek.server.schemas.common import ERRORS
from edgeseek.server.streaming import DONE, EventStream, event, unless_disconnected
from edgeseek.server.usage import header

if TYPE_CHECKING:
    from edgeseek.engine.grammar import Constraint
    from edgeseek.llm import LLM

router = APIRouter(tags=["chat"], responses=ERRORS)


@router.post(
    "/v1/chat/completions",
    response_model=None,
    responses={200: {"model": ChatCompletion, "content": {"text/event-stream": {}}}},
)
async def chat_completions(body: ChatCompletionRequest, request: Request, context: Context) -> Response:
    """Continue a conversation; with `stream`, as server-sent events."""
    lease = await context.host.lease(body.model)
    chat = _Chat(body, lease.llm)
    run = await unless_disconnected(request, Run.begin(request, context, lease, chat.jobs))
    if body.stream:
        return EventStream(run.stream(chat.events, lambda: chat.last(run), chat.failed), run.end)
    await unless_disconnected(request, run.collect(chat.take))
    return JSONResponse(chat.whole(run))


class _Chat:
    """One request: its prompt, and its answers as they grow."""

    def __init__(self, body: ChatCompletionRequest, llm: LLM) -> None:
        self._body = body
        self._llm = llm
        kind = "chat.completion.chunk" if body.stream else "chat.completion"
        self._header = header(kind, "chatcmpl", body.model, llm)
        self._answers: list[ChatAnswer] = []
        self._counts_usage = bool(body.stream_options and body.stream_options.include_usage)

    def jobs(self) -> Sequence[Job]:
        """Render and encode the conversation; runs on another thread."""
        body, llm = self._body, self._llm
        constraint = self._constraint()
        if body.tools:
            raise ApiError(400, "tools is not supported here; leave it out", param="tools")
        if llm.chat_template is None:
            raise ChatTemplateError(f"{llm.name} has no chat template (a base model?); use /v1/completions")
        text = llm.chat_template.render(
            [message.for_template() for message in body.messages],
            add_generation_prompt=True,
            **(body.chat_template_kwargs or {}),
        )
        ids = llm.tokenizer.encode_prompt(text)
        changes: dict[str, Any] = {}
        if body.max_completion_tokens is not None:
            changes["max_tokens"] = body.max_completion_tokens
        if body.logprobs:
            changes["logprobs"] = body.top_logprobs or 0
        jobs = [
            Job(ids, params, None if constraint is None else constraint.fresh())
            for params in sampling_params(body, llm.default_params, **changes)
        ]
        # An answer that must be JSON has no room for reasoning.
        inside = constraint is None and prompt_opens_reasoning(text)
        self._answers = [ChatAnswer(llm.tokenizer, inside_reasoning=inside) for _ in jobs]
        return jobs

    def _constraint(self) -> Constraint | None:
        """What `response_format` asks for."""
        wanted = self._body.response_format
        if wanted is None or wanted.type == "text":
            return None
        try:
            if wanted.type == "json_object":
                return self._llm.grammars.json()
            return self._llm.grammars.json(wanted.json_schema.schema_)
        except UsageError as error:
            raise ApiError(400, str(error), param="response_format") from error

    def take(self, index: int, chunks: list[Chunk]) -> None:
        """Add chunks of an answer that is not streamed."""
        self._answers[index].take(chunks)

    def whole(self, run: Run) -> dict[str, Any]:
        """The answer when it is complete."""
        run.tally.reasoning = sum(answer.reasoning_tokens for answer in self._answers)
        choices = [
            {
                "index": index,
                "message": answer.message(),
                "logprobs": {"content": answer.logprobs, "refusal": None} if self._body.logprobs else None,
                "finish_reason": answer.finish_reason,
            }
            for index, answer in enumerate(self._answers)
        ]
        return {**self._header, "choices": choices, "usage": run.tally.usage()}

    def events(self, index: int, chunks: list[Chunk]) -> bytes:
        """What goes out for some chunks: an event of text, and one more with the reason at the end."""
        answer = self._answers[index]
        first = not answer.begun
        delta = answer.take(chunks)
        answer.begun = True
        sent = b""
        if first:
            sent += self._event(index, {"role": "assistant", "content": ""})
        if delta.message or delta.logprobs:
            sent += self._event(index, delta.message, delta.logprobs)
        if answer.finish_reason is not None:
            sent += self._event(index, {}, reason=answer.finish_reason)
        return sent

    def last(self, run: Run) -> bytes:
        """The totals, if they were asked for, and the end."""
        if not self._counts_usage:
            return DONE
        run.tally.reasoning = sum(answer.reasoning_tokens for answer in self._answers)
        return event(_json({**self._header, "choices": [], "usage": run.tally.usage()})) + DONE

    def failed(self, error: ApiError) -> bytes:
        """An error after the stream began."""
        return event(_json(error.body))

    def _event(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: list[dict[str, Any]] | None = None,
        reason: str | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
            "finish_reason": reason,
        }
        body = {**self._header, "choices": [choice]}
        if self._counts_usage:
            body["usage"] = None
        return event(_json(body))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
