"""`edgeseek pull`: download a model and convert it to a package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from edgeseek.cli import options
from edgeseek.cli.progress import Progress
from edgeseek.cli.services import Services, services_of
from edgeseek.cli.text import size

if TYPE_CHECKING:
    from edgeseek.memory.footprint import Footprint


def pull(
    context: typer.Context,
    model: options.Model,
    scheme: options.Scheme = None,
    keep_source: Annotated[
        bool, typer.Option("--keep-source", help="Keep the downloaded checkpoint after converting it.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Pull again and replace what is there; pull what does not fit here too."
        ),
    ] = False,
) -> None:
    """Download a model and convert it to a package.

    A broken download goes on where it stopped when the command is run again. What was downloaded is
    deleted after the conversion. A path to a checkpoint is converted without a download, and left alone.
    What cannot fit into this machine's memory is refused before it is downloaded.
    """
    services = services_of(context)
    store = services.open_store(services.settings)
    with Progress(services.terminal) as progress:
        pulled = store.pull(
            model,
            scheme=scheme,
            keep_source=keep_source,
            force=force,
            progress=progress,
            accept=_acceptance(services, progress.note, force=force),
        )
    if pulled.summary is None:
        services.terminal.line(f"{pulled.name} is already here; --force pulls it again")
    else:
        services.terminal.line(f"{pulled.name} ({size(pulled.bytes)}): {pulled.summary}")


def _acceptance(
    services: Services, note: Callable[[str], None], *, force: bool
) -> Callable[[Footprint], None]:
    """Says what a model will take on this machine, once; raises DoesNotFitError unless forced."""
    told = False

    def accept(footprint: Footprint) -> None:
        from edgeseek.errors import DoesNotFitError, RuntimeFailure
        from edgeseek.memory.alternatives import Wish, alternatives
        from edgeseek.memory.boards import machine_for

        nonlocal told
        try:
            limits, threads = machine_for("this", services.settings)
        except RuntimeFailure as error:
            note(f"whether it fits cannot be told: {error}")
            return
        wish = Wish(footprint, limits, threads)
        try:
            if not told:
                note(f"{footprint.name}: {wish.plan().summary}")
            told = True
        except DoesNotFitError as error:
            others = "; ".join(other.options for other in alternatives(wish))
            if others and "--scheme" not in others:
                note(f"{footprint.name} fits with {others}")
            elif force:
                note(f"{error}; pulled all the same")
            else:
                hint = f"what would fit: {others}" if others else "it needs a larger machine"
                raise DoesNotFitError(
                    f"{error}; {hint}. --force pulls it all the same",
                    needed=error.needed,
                    available=error.available,
                ) from error

    return accept
