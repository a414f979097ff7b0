"""The tokenizer.json of a Hugging Face folder, with the folder's BOS policy made explicit.

The file is used as it is: normalizer, splits, merges and added tokens are never replaced by what a
class name in tokenizer_config.json suggests. Only the post-processor is, where tokenizer_config
states `add_bos_token` or `add_eos_token`, as `transformers` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgeseek.errors import TokenizerError
from edgeseek.tokenizer.special_tokens import token_text
from edgeseek.tokenizer.tokenizer_json import Token, dump, surround

#: Classes that add BOS unless their config says no (transformers 4 and 5).
_BOS_CLASSES = frozenset(
    {
        "LlamaTokenizer",
        "LlamaTokenizerFast",
        "CodeLlamaTokenizer",
        "CodeLlamaTokenizerFast",
        "GemmaTokenizer",
        "GemmaTokenizerFast",
    }
)


def tokenizer_json_from_folder(tokenizer_json: bytes, config: Mapping[str, Any]) -> bytes:
    """The same tokenizer with the BOS policy of tokenizer_config.json, in the form that loads fast.

    Raises TokenizerError if the file is no tokenizer.json or the policy names an unknown token.
    """
    try:
        document = json.loads(tokenizer_json)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"tokenizer.json is not valid JSON ({error}); fetch it again") from error
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise TokenizerError("tokenizer.json has no model; fetch a complete tokenizer.json")
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        # No decoder turns such pieces into bytes, and on some the library aborts the process.
        if document["model"].get(affix):
            raise TokenizerError(
                f"tokenizer.json has a {affix} ({document['model'][affix]!r}); edgeseek knows none"
            )
    try:
        document["post_processor"] = _post_processor(document, config)
        return dump(document)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise TokenizerError(f"tokenizer.json has a malformed part ({error!r}); fetch it again") from error


def _post_processor(document: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    present = document.get("post_processor")
    has_bos, has_eos = _surrounds(present)
    add_bos, add_eos = config.get("add_bos_token"), config.get("add_eos_token")
    if add_bos is None and add_eos is None:
        by_class = config.get("tokenizer_class") in _BOS_CLASSES
        if present is not None or not by_class or token_text(config.get("bos_token")) is None:
            return present
        add_bos = True
    wants_bos = has_bos if add_bos is None else bool(add_bos)
    wants_eos = has_eos if add_eos is None else bool(add_eos)
    if (wants_bos, wants_eos) == (has_bos, has_eos):
        return present
    return surround(
        _token(document, config, "bos") if wants_bos else None,
        _token(document, config, "eos") if wants_eos else None,
    )


def _surrounds(processor: Mapping[str, Any] | None) -> tuple[bool, bool]:
    """Whether a post-processor puts a token (before, after) a single text."""
    if processor is None:
        return False, False
    kind = processor["type"]
    if kind == "TemplateProcessing":
        single = processor["single"]
        for piece in single:  # the library panics on a token it has no ids for
            if "SpecialToken" in piece:
                processor["special_tokens"][piece["SpecialToken"]["id"]]
        return "SpecialToken" in single[0], "SpecialToken" in single[-1]
    if kind == "Sequence":
        parts = [_surrounds(part) for part in processor["processors"]]
        return any(before for before, _ in parts), any(after for _, after in parts)
    surrounds = kind in ("BertProcessing", "RobertaProcessing")
    return surrounds, surrounds


def _token(document: Mapping[str, Any], config: Mapping[str, Any], name: str) -> Token:
    text = token_text(config.get(f"{name}_token"))
    if text is None:
        raise TokenizerError(
            f"tokenizer_config.json says add_{name}_token but names no {name}_token; add it there"
        )
    for added in document.get("added_tokens") or ():
        if added["content"] == text:
            return text, added["id"]
    vocab = document["model"]["vocab"]
    if isinstance(vocab, dict) and text in vocab:
        return text, vocab[text]
    raise TokenizerError(
        f"tokenizer_config.json names the {name}_token {text!r}, which tokenizer.json does not have"
    )
