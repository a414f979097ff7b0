"""From a checkpoint's text assets to what a package stores: tokenizer.json and chat template."""

from __future__ import annotations

from edgeseek.checkpoints.base import TextAssets
from edgeseek.errors import ChatTemplateError, TokenizerError
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
    """Source of the checkpoint's default chat template, None if it has none (a base model).

    Raises ChatTemplateError where it is no valid Unicode.
    """
    template = assets.chat_template or assets.gguf_metadata.get("tokenizer.chat_template")
    if not isinstance(template, str) or not template:
        return None
    try:
        template.encode()
    except UnicodeEncodeError as error:
        raise ChatTemplateError(
            f"the chat template has a lone surrogate at character {error.start}; fetch the file again"
        ) from error
    return template
