"""Text in and out of a model: tokenizers, incremental decoding, chat templates.

Used by engine, llm, server and cli; the runtime never imports it.
"""

from __future__ import annotations

from edgeseek.tokenizer.assets import build_tokenizer_json, chat_template_of
from edgeseek.tokenizer.special_tokens import (
    SpecialTokens,
    generation_defaults,
    special_tokens_of,
)
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
