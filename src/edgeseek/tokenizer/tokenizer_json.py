"""The pieces of a tokenizer.json that both sources share, and how it is written.

Owns the post-processor that says which tokens surround a text, and the form that loads fastest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from edgeseek.errors import TokenizerError

Token = tuple[str, int]


def surround(bos: Token | None, eos: Token | None) -> dict[str, Any] | None:
    """A post-processor that adds the given tokens around a text; None if there are none."""
    before = [bos] if bos else []
    after = [eos] if eos else []
    if not before and not after:
        return None

    def template(sequence: str, type_id: int) -> list[dict[str, Any]]:
        def special(token: Token) -> dict[str, Any]:
            return {"SpecialToken": {"id": token[0], "type_id": type_id}}

        middle = {"Sequence": {"id": sequence, "type_id": type_id}}
        return [*map(special, before), middle, *map(special, after)]

    return {
        "type": "TemplateProcessing",
        "single": template("A", 0),
        "pair": template("A", 0) + template("B", 1),
        "special_tokens": {
            text: {"id": text, "ids": [token_id], "tokens": [text]} for text, token_id in (*before, *after)
        },
    }


def added_token(token_id: int, text: str, *, special: bool) -> dict[str, Any]:
    """An entry of `added_tokens`: matched literally before any splitting."""
    return {
        "id": token_id,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def bpe_model(
    vocab: Mapping[str, int],
    merges: Iterable[str],
    *,
    unknown: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    """A `model` of type BPE; merges are "left right", strongest first."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": vocab,
        "merges": merges,
    }


def document(
    *,
    added_tokens: list[dict[str, Any]],
    normalizer: dict[str, Any] | None,
    pre_tokenizer: dict[str, Any] | None,
    post_processor: dict[str, Any] | None,
    decoder: dict[str, Any],
    model: dict[str, Any],
) -> dict[str, Any]:
    """A whole tokenizer.json (format "1.0")."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }


def dump(document: Mapping[str, Any]) -> bytes:
    """Write a tokenizer.json as `tokenizers` loads it fastest.

    Compact UTF-8, and merges as "left right" strings where no part holds a space: for 152,000
    tokens that halves the peak memory of loading against pairs and saves a fifth of its time.
    """
    model = document["model"]
    merges = model.get("merges")
    pairs = model.get("type", "BPE") == "BPE" and merges and not isinstance(merges[0], str)
    if pairs and not any(" " in part for pair in merges for part in pair):
        document = {**document, "model": {**model, "merges": list(map(" ".join, merges))}}
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the vocabulary holds a lone surrogate ({error.object[error.start : error.end]!r}); "
            f"the tokenizer file is damaged"
        ) from error
