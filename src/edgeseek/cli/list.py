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
        for model in models:
            if model.problem is not None:
                services.terminal.note(f"{model.name}: {model.problem}")


def _row(model: StoredModel) -> tuple[str, ...]:
    if model.config is None:
        return model.name, "(damaged)", size(model.bytes), "-", "-"
    context = str(model.config.max_context)
    return model.name, model.config.architecture, size(model.bytes), ",".join(model.schemes), context


def _as_json(model: StoredModel) -> dict[str, Any]:
    config = model.config
    return {
        "name": model.name,
        "path": str(model.path),
        "architecture": None if config is None else config.architecture,
        "bytes": model.bytes,
        "schemes": [*model.schemes],
        "max_context": None if config is None else config.max_context,
        "problem": model.problem,
    }
