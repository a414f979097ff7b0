"""`edgeseek run`: answer one prompt, or chat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edgeseek.cli import options
from edgeseek.cli.answer import Answer, as_json, show, timing_line
from edgeseek.cli.chat import Chat, Message
from edgeseek.cli.progress import Progress
from edgeseek.cli.services import Services, services_of
from edgeseek.errors import UsageError

if TYPE_CHECKING:
    from edgeseek.llm import LLM, Chunk, SamplingParams


def run(
    context: typer.Context,
    model: options.Model = options.DEFAULT_MODEL,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", "-p", metavar="TEXT", help="Answer this text and exit.", show_default="chat, or stdin"
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="TEXT", help="Instructions that precede the conversation."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            "-n",
            metavar="N",
            min=1,
            help="Longest answer.",
            show_default="what the context holds",
        ),
    ] = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    context_tokens: options.Context = None,
    threads: options.Threads = None,
    scheme: options.Scheme = None,
    speculation: options.SpeculationName = "lookup",
    preload: options.PreloadName = "populate",
    kv: options.Kv = "f16",
    budget: options.Budget = None,
    backend: options.BackendName = None,
    provider: options.Provider = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")
    ] = False,
    as_object: options.Json = False,
) -> None:
    """Answer one prompt, or chat.

    With --prompt or a text piped to stdin it prints the answer and exits; otherwise it is an interactive
    chat. Without MODEL it uses smollm2-135m. A model that is not there yet is pulled first. Only the answer
    goes to stdout.
    """
    services = services_of(context)
    if raw and system is not None:
        raise UsageError("--system needs the chat template, which --raw leaves out; drop one of them")
    text = _prompt_text(services, prompt)
    if text is None and as_object:
        raise UsageError("--json prints one answer; give --prompt TEXT or pipe the prompt to stdin")
    if system is not None:
        system = options.check_text("--system", system)

    started = services.clock()
    with Progress(services.terminal) as progress:
        llm = services.load(
            model,
            scheme=scheme,
            context=context_tokens,
            threads=threads,
            speculation=speculation,
            preload=preload,
            kv=kv,
            budget=options.byte_count("--budget", budget),
            backend=backend,
            provider=provider,
            settings=services.settings,
            progress=progress,
            report=progress.note,
        )
    load_s = services.clock() - started
    try:
        params = options.sampling_params(
            llm.default_params,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            seed=seed,
            stop=stop,
        )
        session = _Session(services, llm, params, load_s, system=system, raw=raw)
        if text is None:
            session.chat()
        elif as_object:
            session.print_json(text)
        else:
            session.answer(text)
    finally:
        llm.close()


def _prompt_text(services: Services, prompt: str | None) -> str | None:
    """The one prompt to answer, or None for a chat."""
    if prompt is not None:
        text, where = options.check_text("--prompt", prompt), "--prompt"
    elif services.terminal.stdin_is_terminal:
        return None
    else:
        # A pipe's text ends with the newline of the command that wrote it.
        text, where = services.terminal.read_all().removesuffix("\n"), "stdin"
    if not text:
        raise UsageError(f"the prompt from {where} is empty; write some text")
    return text


class _Session:
    """A loaded model and how this run asks it."""

    def __init__(
        self,
        services: Services,
        llm: LLM,
        params: SamplingParams,
        load_s: float,
        *,
        system: str | None,
        raw: bool,
    ) -> None:
        self._terminal, self._settings = services.terminal, services.settings
        self._llm, self._params, self._load_s = llm, params, load_s
        self._system = system
        self._raw = raw or llm.chat_template is None
        if self._raw and system is not None:
            raise UsageError(f"{llm.name} has no chat template, which --system needs; leave it out")
        if self._raw and not raw:
            self._terminal.note("this model has no chat template; it continues the text as it is")

    def answer(self, text: str) -> None:
        """Stream one answer to stdout and the timings to stderr."""
        answer = Answer()
        try:
            show(
                self._ask([*self._opening(), {"role": "user", "content": text}]), self._terminal.write, answer
            )
        finally:
            if answer.text and not answer.text.endswith("\n"):
                self._terminal.line()
        self._timings(answer, load_s=self._load_s)

    def print_json(self, text: str) -> None:
        """Print the answer and its figures as one object."""
        answer = Answer()
        for chunk in self._ask([*self._opening(), {"role": "user", "content": text}]):
            answer.take(chunk)
        self._terminal.line(json.dumps(as_json(answer, self._load_s, self._peak()), ensure_ascii=False))

    def chat(self) -> None:
        """Talk until the user leaves."""
        Chat(self._terminal, self._ask, self._timings, self._system).loop()

    def _opening(self) -> list[Message]:
        return [] if self._system is None else [{"role": "system", "content": self._system}]

    def _ask(self, messages: Sequence[Message]) -> Iterator[Chunk]:
        if self._raw:
            return self._llm.generate(messages[-1]["content"], self._params)
        return self._llm.chat(messages, self._params)

    def _timings(self, answer: Answer, load_s: float | None = None) -> None:
        self._terminal.note(timing_line(answer, load_s, self._peak()))

    def _peak(self) -> int | None:
        from edgeseek.memory.limits import peak_rss

        return peak_rss(self._settings)
