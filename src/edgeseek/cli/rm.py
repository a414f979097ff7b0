"""`edgeseek rm`: delete a pulled model."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeseek.cli.services import services_of
from edgeseek.cli.text import size
from edgeseek.errors import UsageError


def rm(
    context: typer.Context,
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Names from `edgeseek list`.", show_default=False),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete pulled models. Asks first, unless --yes."""
    services = services_of(context)
    terminal = services.terminal
    store = services.open_store(services.settings)
    # All names are looked up before anything is deleted: a typing error must not leave half the work done.
    found = [store.find(name) for name in dict.fromkeys(models)]
    if not yes and not terminal.stdin_is_terminal:
        raise UsageError("there is no terminal to ask on; give --yes to delete without asking")
    for model in found:
        if yes or terminal.confirm(f"Delete {model.name} ({size(model.bytes)})?"):
            store.remove(model.name)
            terminal.line(f"deleted {model.name}, {size(model.bytes)} freed")
        else:
            terminal.note(f"kept {model.name}")
