"""From a checkpoint's text assets to what a package stores: tokenizer.json and chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeseek.checkpoints.base import TextAssets
from edgeseek.errors import TokenizerError
from edgeseek.tokenizer.from_folder import tokenizer_json_from_folder
from edgeseek.tokenizer.from_gguf import tokenizer_json_from_gguf


def build_tokenizer_json(assets: TextAssets) -> bytes:
    """The tokenizer.json that reproduces the checkpoint's tokenizer, BOS policy included.

    Raises TokenizerError naming what is missing, unknown or damaged.
    """
    if assets.tokenizer_json is not None:
        return tokenizer_json_from_folder(assets.tokenizer_json, assets.tokenizer_config)
    if assets.gguf_metadata:
        return tokenizer_json_from_gguf(assets.gguf_metadata)
    raise TokenizerError(
        "the checkpoint has no tokenizer.json; fetch it with the model (a tokenizer.model alone is not "
        "enough) or use a GGUF of the model"
    )


def chat_template_of(assets: TextAssets) -> str | None:
    """Source of the checkpoint's default chat template, None if it has none (a base model)."""
    candidates = (
        assets.chat_template,
        assets.tokenizer_config.get("chat_template"),
        assets.gguf_metadata.get("tokenizer.chat_template"),
        assets.gguf_metadata.get("tokenizer.chat_template.default"),
    )
    for candidate in candidates:
        template = _default_template(candidate)
        if template:
            return template
    return None


def _default_template(value: Any) -> str | None:
    """A template, or the one named "default" of a list of {name, template} or a dict by name."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _default_template(value.get("default"))
    if isinstance(value, (list, tuple)):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, Mapping)}
        return _default_template(named.get("default"))
    return None
