"""Which tokens begin and end a text, from whatever the checkpoint says of them.

A folder says it in up to three places that disagree (DeepSeek-R1-Distill-Qwen's config.json names
another BOS than its tokenizer). The tokenizer's own word is put first, as templates rely on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgeseek.checkpoints.base import TextAssets
from edgeseek.errors import TokenizerError
from edgeseek.tokenizer.gguf_vocabulary import CONTROL, USER_DEFINED, GgufVocabulary, read_vocabulary

#: Spellings of control tokens that end a turn or a document in the families we run; GGUF files name
#: only one of them as EOS.
_END_SPELLINGS = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|EOT|>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "</s>",
    }
)


@dataclass(frozen=True)
class SpecialTokens:
    """BOS (named, whether or not prompts get one) and the tokens that end a generation."""

    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]


def token_text(value: Any) -> str | None:
    """The text of a token in tokenizer_config.json, where it is a string or an AddedToken object."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def special_tokens_of(assets: TextAssets) -> SpecialTokens:
    """BOS and EOS of a checkpoint; the tokenizer's own EOS comes first, then all others known.

    Raises TokenizerError where the files are malformed.
    """
    if assets.gguf_metadata:
        return _of_gguf(read_vocabulary(assets.gguf_metadata))
    try:
        return _of_folder(assets)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TokenizerError(
            f"the special tokens in tokenizer.json, tokenizer_config.json or generation_config.json are "
            f"malformed ({error!r}); fetch the files again"
        ) from error


def generation_defaults(assets: TextAssets) -> dict[str, Any]:
    """The generation_config of a package: the checkpoint's own with BOS and EOS filled in.

    `bos_token_id` is an int or absent, `eos_token_id` a list or absent.
    """
    known = special_tokens_of(assets)
    defaults = dict(assets.generation_config)
    if known.bos_token_id is not None:
        defaults["bos_token_id"] = known.bos_token_id
    if known.eos_token_ids:
        defaults["eos_token_id"] = list(known.eos_token_ids)
    return defaults


def _of_gguf(vocabulary: GgufVocabulary) -> SpecialTokens:
    named = () if vocabulary.eos_id is None else (vocabulary.eos_id,)
    spelled = (
        token_id
        for token_id in vocabulary.ids_of_type(CONTROL, USER_DEFINED)
        if vocabulary.tokens[token_id] in _END_SPELLINGS
    )
    return SpecialTokens(vocabulary.bos_id, _unique([*named, *vocabulary.other_end_ids, *spelled]))


def _of_folder(assets: TextAssets) -> SpecialTokens:
    ids = _added_ids(assets)
    generation = assets.generation_config
    bos = ids.get(token_text(assets.tokenizer_config.get("bos_token")) or "")
    eos = ids.get(token_text(assets.tokenizer_config.get("eos_token")) or "")
    if bos is None:
        bos = next(iter(_ids(generation.get("bos_token_id"))), None)
    return SpecialTokens(bos, _unique([*_ids(eos), *_ids(generation.get("eos_token_id"))]))


def _added_ids(assets: TextAssets) -> dict[str, int]:
    """Text -> id of the added tokens of a folder."""
    decoder = assets.tokenizer_config.get("added_tokens_decoder") or {}
    ids = {token_text(token) or "": int(token_id) for token_id, token in decoder.items()}
    if assets.tokenizer_json is not None:
        document = json.loads(assets.tokenizer_json)
        vocab = document["model"].get("vocab")
        for name in ("bos_token", "eos_token"):
            text = token_text(assets.tokenizer_config.get(name))
            if text is not None and isinstance(vocab, dict) and text in vocab:
                ids.setdefault(text, vocab[text])
        ids.update({token["content"]: token["id"] for token in document.get("added_tokens") or ()})
    return ids


def _ids(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(item) for item in value] if isinstance(value, (list, tuple)) else [int(value)]


def _unique(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ids))
