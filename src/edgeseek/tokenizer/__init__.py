"""Text in and out of a model: tokenizers, incremental decoding, chat templates.

Used by engine, llm, server and cli; the runtime never imports it. Names are imported on first use: a raw
prompt needs no templates, and a package no vocabulary conversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeseek.lazy import imported_later

if TYPE_CHECKING:
    from edgeseek.tokenizer.assets import build_tokenizer_json, chat_template_of
    from edgeseek.tokenizer.special_tokens import SpecialTokens, generation_defaults, special_tokens_of
    from edgeseek.tokenizer.stream import StreamDecoder
    from edgeseek.tokenizer.template_meter import TemplateLimits
    from edgeseek.tokenizer.templates import ChatTemplate
    from edgeseek.tokenizer.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "SpecialTokens",
    "StreamDecoder",
    "TemplateLimits",
    "Tokenizer",
    "build_tokenizer_json",
    "chat_template_of",
    "generation_defaults",
    "special_tokens_of",
]

__getattr__ = imported_later(
    __name__,
    {
        "ChatTemplate": "templates",
        "SpecialTokens": "special_tokens",
        "StreamDecoder": "stream",
        "TemplateLimits": "template_meter",
        "Tokenizer": "tokenizer",
        "build_tokenizer_json": "assets",
        "chat_template_of": "assets",
        "generation_defaults": "special_tokens",
        "special_tokens_of": "special_tokens",
    },
)
