"""`edgeseek serve`: the API of OpenAI over HTTP."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeseek.cli import options
from edgeseek.cli.services import Services, services_of
from edgeseek.errors import UsageError

if TYPE_CHECKING:
    from edgeseek.llm import LLM
    from edgeseek.server.config import ServerConfig
    from edgeseek.server.model_host import LoadProgress

#: Keys of a configuration file, and their types; as on the command line, without dashes.
FILE_KEYS: dict[str, type] = {
    "model": str,
    "host": str,
    "port": int,
    "name": str,
    "context": int,
    "slots": int,
    "threads": int,
    "scheme": str,
    "kv": str,
    "preload": str,
    "speculation": str,
    "budget": str,
    "memory-high": str,
    "memory-max": str,
    "backend": str,
    "provider": str,
    "step-tokens": int,
    "api-key-file": str,
    "cors": list,
    "max-queue": int,
    "max-body": str,
    "idle-unload": float,
    "drain-seconds": float,
    "insecure": bool,
}
#: Those that go to `LLM.load`, by its names.
_LOAD_KEYS = (
    "context",
    "slots",
    "threads",
    "scheme",
    "kv",
    "preload",
    "speculation",
    "backend",
    "provider",
    "step-tokens",
)


def serve(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]", help="As for run; may be in the configuration file.", show_default=False
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on.", show_default="127.0.0.1"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", help="Port to listen on; 0 takes a free one.", show_default="8080"
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="What clients call the model.", show_default="MODEL"),
    ] = None,
    context_tokens: options.Context = None,
    slots: Annotated[
        int | None,
        typer.Option(
            "--slots", metavar="N", min=1, help="How many full contexts the KV cache holds.", show_default="1"
        ),
    ] = None,
    threads: options.Threads = None,
    scheme: options.Scheme = None,
    speculation: Annotated[
        str | None,
        typer.Option(
            "--speculation",
            metavar="lookup|off",
            help="Guess tokens from the text so far; the answer is the same.",
            show_default="lookup",
        ),
    ] = None,
    preload: Annotated[
        str | None,
        typer.Option(
            "--preload",
            metavar="none|populate|lock|copy",
            help="How the weights come into memory.",
            show_default="populate",
        ),
    ] = None,
    kv: Annotated[
        str | None,
        typer.Option("--kv", metavar="f16|int8", help="How keys and values are stored.", show_default="f16"),
    ] = None,
    budget: options.Budget = None,
    memory_high: options.MemoryHigh = None,
    memory_max: options.MemoryMax = None,
    backend: options.BackendName = None,
    provider: options.Provider = None,
    step_tokens: Annotated[
        int | None,
        typer.Option(
            "--step-tokens",
            metavar="N",
            min=8,
            help="Tokens of prompts and answers in one step, at most; fewer make running answers steadier.",
            show_default="512",
        ),
    ] = None,
    api_key_file: Annotated[
        str | None,
        typer.Option(
            "--api-key-file",
            metavar="FILE",
            help="Keys that clients may use, one a line.",
            show_default="EDGESEEK_API_KEY, else none",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors", metavar="ORIGIN", help="Let pages of this origin call; may be given again, * for all."
        ),
    ] = None,
    max_queue: Annotated[
        int | None,
        typer.Option(
            "--max-queue",
            metavar="N",
            help="Requests that may wait; more get 429.",
            show_default="64",
        ),
    ] = None,
    max_body: Annotated[
        str | None,
        typer.Option("--max-body", metavar="SIZE", help="Largest request.", show_default="4MiB"),
    ] = None,
    idle_unload: Annotated[
        float | None,
        typer.Option(
            "--idle-unload",
            metavar="SECONDS",
            help="Release the model when nobody asked for so long; the next request loads it again.",
            show_default="never",
        ),
    ] = None,
    drain_seconds: Annotated[
        float | None,
        typer.Option(
            "--drain-seconds",
            metavar="SECONDS",
            help="How long running answers may go on after SIGTERM.",
            show_default="30",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback without an API key.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Take options from a TOML file; those given here come first."
        ),
    ] = None,
) -> None:
    """Serve a model over HTTP with the API of OpenAI.

    Listens at once and answers 503 until the model is loaded; /health tells how far that is. SIGTERM lets
    running answers end. Only this machine can connect unless --host says otherwise.
    """
    services = services_of(context)
    given = {
        "model": model,
        "host": host,
        "port": port,
        "name": name,
        "context": context_tokens,
        "slots": slots,
        "threads": threads,
        "scheme": scheme,
        "speculation": speculation,
        "preload": preload,
        "kv": kv,
        "budget": budget,
        "memory-high": memory_high,
        "memory-max": memory_max,
        "backend": backend,
        "provider": provider,
        "step-tokens": step_tokens,
        "api-key-file": api_key_file,
        "cors": cors or None,
        "max-queue": max_queue,
        "max-body": max_body,
        "idle-unload": idle_unload,
        "drain-seconds": drain_seconds,
        "insecure": insecure or None,
    }
    from edgeseek.memory.cgroup_placement import place
    from edgeseek.server.lifecycle import check_extra, configure_logging, serve

    check_extra()
    made = config_of(given, config, services.settings.api_keys)
    configure_logging(services.terminal.stderr)
    if made.memory.any:
        # Before the model is planned: the group's limit is one that the plan heeds.
        for line in place(made.memory, services.settings).lines:
            services.terminal.note(line)
    code = serve(made, _Loader(services, made), environ=os.environ, say=services.terminal.note)
    if code:
        raise typer.Exit(code)


def config_of(given: dict[str, Any], file: Path | None, keys: Sequence[str]) -> ServerConfig:
    """The configuration from the command line's options, which come first, and a file's; `keys` are more.

    Raises UsageError for an unknown key, a wrong value, or no model.
    """
    from edgeseek.memory.cgroup_placement import MemoryBounds
    from edgeseek.server.auth import read_keys
    from edgeseek.server.config import ServerConfig, read_config_file
    from edgeseek.server.lifecycle import served_name

    found = {} if file is None else read_config_file(file, FILE_KEYS)
    found.update({key: value for key, value in given.items() if value is not None})
    model = found.pop("model", None)
    if model is None:
        raise UsageError("no model is named; give MODEL, or model in the configuration file")
    load = {key.replace("-", "_"): found.pop(key) for key in _LOAD_KEYS if key in found}
    load["budget"] = options.byte_count("--budget", found.pop("budget", None))
    high, maximum = (
        options.byte_count(f"--{key}", found.pop(key, None)) for key in ("memory-high", "memory-max")
    )
    key_file = found.pop("api-key-file", None)
    keys = read_keys(None if key_file is None else Path(key_file).expanduser(), keys)
    if "max-body" in found:
        found["max-body"] = options.byte_count("--max-body", found["max-body"])
    if "cors" in found:
        found["cors"] = tuple(found["cors"])
    found.setdefault("name", served_name(model))
    values = {key.replace("-", "_"): value for key, value in found.items()}
    bounds = MemoryBounds(high, maximum)
    return ServerConfig(model=model, api_keys=tuple(keys), load=load, memory=bounds, **values)


@dataclass(frozen=True)
class _Loader:
    services: Services
    config: ServerConfig

    def __call__(self, progress: LoadProgress) -> LLM:
        log = logging.getLogger("edgeseek.server")
        llm = self.services.load(
            self.config.model,
            settings=self.services.settings,
            progress=progress,
            report=lambda line: log.info("%s", line),
            **self.config.load,
        )
        # It ends with the model.
        guard = llm.guard_memory(self.services.settings)
        log.info("memory guard watches %s", ", ".join(guard.watched))
        return llm
