"""`edgeseek pull`: download a model and convert it to a package."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeseek.cli import options
from edgeseek.cli.progress import Progress
from edgeseek.cli.services import services_of
from edgeseek.cli.text import size


def pull(
    context: typer.Context,
    model: options.Model,
    scheme: options.Scheme = None,
    keep_source: Annotated[
        bool, typer.Option("--keep-source", help="Keep the downloaded checkpoint after converting it.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Pull again and replace what is there.")] = False,
) -> None:
    """Download a model and convert it to a package.

    A broken download goes on where it stopped when the command is run again. What was downloaded is
    deleted after the conversion. A path to a checkpoint is converted without a download, and left alone.
    """
    services = services_of(context)
    store = services.open_store(services.settings)
    with Progress(services.terminal) as progress:
        pulled = store.pull(model, scheme=scheme, keep_source=keep_source, force=force, progress=progress)
    if pulled.summary is None:
        services.terminal.line(f"{pulled.name} is already here; --force pulls it again")
    else:
        services.terminal.line(f"{pulled.name} ({size(pulled.bytes)}): {pulled.summary}")
