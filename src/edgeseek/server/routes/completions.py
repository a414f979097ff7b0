"""POST /v1/completions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from edgeseek.engine import Chunk
from edgeseek.server.choices import finish_reason
from edgeseek.server.context import Context
from edgeseek.server.errors import ApiError
from edgeseek.server.generation import Job
from edgeseek.server.running import Run
from edgeseek.server.sampling import sampling_params
from edgeseek.server.schemas.common import ERRORS, MAX_ANSWERS
from edgeseek.server.schemas.completions import Completion, CompletionRequest
from edgeseek.server.streaming import DONE, EventStream, event, unless_disconnected
from edgeseek.server.usage import header

if TYPE_CHECKING:
    from edgeseek.llm import LLM
    from edgeseek.tokenizer import Tokenizer

router = APIRouter(tags=["completions"], responses=ERRORS)


@router.post(
    "/v1/completions",
    response_model=None,
    responses={200: {"model": Completion, "content": {"text/event-stream": {}}}},
)
async def completions(body: CompletionRequest, request: Request, context: Context) -> Response:
    """Continue texts or token ids; with `stream`, as server-sent events."""
    prompts = prompts_of(body)
    answers = body.n or 1
    if len(prompts) * answers > MAX_ANSWERS:
        raise ApiError(
            400, f"n: {len(prompts)} prompts × n {answers} are more than {MAX_ANSWERS} answers", param="n"
        )
    lease = await context.host.lease(body.model)
    work = _Completions(body, prompts, lease.llm)
    prompt_of = [index // answers for index in range(len(prompts) * answers)]
    run = await unless_disconnected(request, Run.begin(request, context, lease, work.jobs, prompt_of))
    if body.stream:
        return EventStream(run.stream(work.events, lambda: work.last(run), work.failed), run.end)
    await unless_disconnected(request, run.collect(work.take))
    return JSONResponse(work.whole(run))


def prompts_of(body: CompletionRequest) -> list[str] | list[list[int]]:
    """The prompts of a request, always as a list."""
    prompt: Any = body.prompt
    if isinstance(prompt, str) or isinstance(prompt[0], int):
        return [prompt]
    return list(prompt)


class _Answer:
    """One text as it grows, with its log-probabilities in the four parallel lists of this API."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.text = ""
        self.finish_reason: str | None = None
        self._offset = 0
        self.logprobs: dict[str, list[Any]] = _no_logprobs()

    def take(self, chunks: Sequence[Chunk]) -> tuple[str, dict[str, list[Any]]]:
        """Add chunks; return their text and log-probabilities."""
        text, logprobs = "", _no_logprobs()
        for chunk in chunks:
            text += chunk.text
            for found in chunk.logprobs:
                token = self._text(found.token_id)
                logprobs["tokens"].append(token)
                logprobs["token_logprobs"].append(max(found.logprob, -9999.0))
                logprobs["top_logprobs"].append({self._text(i): max(p, -9999.0) for i, p in found.top})
                logprobs["text_offset"].append(self._offset)
                self._offset += len(token)
            if chunk.finish_reason is not None:
                self.finish_reason = finish_reason(chunk)
        self.text += text
        for name, items in logprobs.items():
            self.logprobs[name] += items
        return text, logprobs

    def _text(self, token: int) -> str:
        return self._tokenizer.token_bytes(token).decode("utf-8", "replace")


class _Completions:
    """One request: its prompts, and their answers as they grow."""

    def __init__(self, body: CompletionRequest, prompts: list[str] | list[list[int]], llm: LLM) -> None:
        self._body = body
        self._prompts = prompts
        self._llm = llm
        self._header = header("text_completion", "cmpl", body.model, llm)
        self._answers = [_Answer(llm.tokenizer) for _ in range(len(prompts) * (body.n or 1))]
        self._counts_usage = bool(body.stream_options and body.stream_options.include_usage)

    def jobs(self) -> Sequence[Job]:
        """Encode the prompts; runs on another thread."""
        changes = {} if self._body.logprobs is None else {"logprobs": self._body.logprobs}
        every = sampling_params(self._body, self._llm.default_params, **changes)
        encode = self._llm.tokenizer.encode_prompt
        ids = [encode(prompt) if isinstance(prompt, str) else prompt for prompt in self._prompts]
        return [Job(prompt, params) for prompt in ids for params in every]

    def take(self, index: int, chunks: list[Chunk]) -> None:
        """Add chunks of an answer that is not streamed."""
        self._answers[index].take(chunks)

    def whole(self, run: Run) -> dict[str, Any]:
        """The answer when it is complete."""
        choices = [
            self._choice(index, answer.text, answer.logprobs, answer.finish_reason)
            for index, answer in enumerate(self._answers)
        ]
        return {**self._header, "choices": choices, "usage": run.tally.usage()}

    def events(self, index: int, chunks: list[Chunk]) -> bytes:
        """What goes out for some chunks; the reason comes with the last one's text."""
        answer = self._answers[index]
        text, logprobs = answer.take(chunks)
        if not (text or logprobs["tokens"] or answer.finish_reason):
            return b""
        return self._event([self._choice(index, text, logprobs, answer.finish_reason)], usage=None)

    def last(self, run: Run) -> bytes:
        """The totals, if they were asked for, and the end."""
        return (self._event([], usage=run.tally.usage()) if self._counts_usage else b"") + DONE

    def failed(self, error: ApiError) -> bytes:
        """An error after the stream began."""
        return event(json.dumps(error.body))

    def _choice(
        self, index: int, text: str, logprobs: dict[str, list[Any]], reason: str | None
    ) -> dict[str, Any]:
        shown = None if self._body.logprobs is None else logprobs
        return {"index": index, "text": text, "logprobs": shown, "finish_reason": reason}

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
        body = {**self._header, "choices": choices}
        if self._counts_usage:
            body["usage"] = usage
        return event(json.dumps(body, ensure_ascii=False, separators=(",", ":")))


def _no_logprobs() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
