"""`edgeseek perplexity`: how well a model predicts a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgeseek.cli import options
from edgeseek.cli.progress import Progress
from edgeseek.cli.services import services_of
from edgeseek.cli.text import read_text
from edgeseek.errors import ContextTooLongError, UsageError


def perplexity(
    context: typer.Context,
    model: options.Model,
    text: Annotated[
        Path, typer.Option("--text", metavar="FILE", help="UTF-8 text to predict.", show_default=False)
    ],
    window: Annotated[
        int, typer.Option("--window", metavar="N", min=2, help="Tokens that are predicted together.")
    ] = 512,
    threads: options.Threads = None,
    scheme: options.Scheme = None,
    kv: options.Kv = "f16",
    as_object: options.Json = False,
) -> None:
    """Measure how well a model predicts a text.

    The text is cut into windows that do not overlap; the first token of each is not scored. Lower is
    better; compare figures of the same text and window only.
    """
    services = services_of(context)
    contents = read_text(text, "--text")
    try:
        with Progress(services.terminal) as progress:
            llm = services.load(
                model,
                scheme=scheme,
                context=window,
                threads=threads,
                kv=kv,
                settings=services.settings,
                progress=progress,
                report=progress.note,
            )
    except ContextTooLongError as error:
        most = error.max_context
        raise UsageError(
            f"a --window of {window} tokens is more than the {most} that the model knows; give {most} or less"
        ) from error
    try:
        with Progress(services.terminal, counts_tokens=True) as progress:
            result = services.perplexity(llm, contents, window, progress=progress)
    finally:
        llm.close()
    if as_object:
        figures = {
            "perplexity": result.perplexity,
            "tokens": result.tokens,
            "windows": result.windows,
            "window": window,
        }
        services.terminal.line(json.dumps(figures))
    else:
        services.terminal.line(
            f"perplexity {result.perplexity:.4f} over {result.tokens} tokens in windows of {window}"
        )
