"""`edgeseek list`: the models that are here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from edgeseek.cli import options
from edgeseek.cli.services import services_of
from edgeseek.cli.text import columns, size

if TYPE_CHECKING:
    from edgeseek.store import StoredModel


def list_models(context: typer.Context, as_object: options.Json = False) -> None:
    """List the models that were pulled."""
    services = services_of(context)
    models = services.open_store(services.settings).models()
    if as_object:
        services.terminal.line(json.dumps([_as_json(model) for model in models], ensure_ascii=False))
    elif not models:
        folder = services.settings.packages_dir
        services.terminal.note(f"no models in {folder}; get one with: edgeseek pull {options.DEFAULT_MODEL}")
    else:
        rows = [("NAME", "ARCHITECTURE", "SIZE", "SCHEMES", "CONTEXT"), *map(_row, models)]
        for line in columns(rows, right=(2, 4)):
            services.terminal.line(line)


def _row(model: StoredModel) -> tuple[str, ...]:
    config = model.config
    return (
        model.name,
        config.architecture,
        size(model.bytes),
        ",".join(model.schemes),
        str(config.max_context),
    )


def _as_json(model: StoredModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "path": str(model.path),
        "architecture": model.config.architecture,
        "bytes": model.bytes,
        "schemes": [*model.schemes],
        "max_context": model.config.max_context,
    }
