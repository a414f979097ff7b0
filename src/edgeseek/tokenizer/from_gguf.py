"""A GGUF's vocabulary as a tokenizer.json.

Owns the meaning of GGUF token types for byte-level BPE ("gpt2") and joins the parts; SentencePiece
vocabularies ("llama") are in spm.py, the splits by name in pre_tokenizers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeseek.errors import TokenizerError
from edgeseek.tokenizer import spm
from edgeseek.tokenizer.gguf_vocabulary import (
    CONTROL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    GgufVocabulary,
    read_vocabulary,
)
from edgeseek.tokenizer.pre_tokenizers import byte_level, pre_tokenizer
from edgeseek.tokenizer.tokenizer_json import Token, added_token, bpe_model, document, dump, surround


def tokenizer_json_from_gguf(metadata: Mapping[str, Any]) -> bytes:
    """The tokenizer.json of a GGUF's `tokenizer.*` metadata.

    Raises TokenizerError for a vocabulary kind or pre-tokenizer we do not know and for metadata
    that contradicts itself.
    """
    vocabulary = read_vocabulary(metadata)
    if vocabulary.kind == "gpt2":
        return dump(_byte_level_bpe(vocabulary))
    if vocabulary.kind == "llama":
        return dump(_sentencepiece(vocabulary))
    raise TokenizerError(
        f"the GGUF's vocabulary is of kind {vocabulary.kind!r}; edgeseek knows gpt2 (byte-level BPE) "
        f"and llama (SentencePiece)"
    )


def _byte_level_bpe(vocabulary: GgufVocabulary) -> dict[str, Any]:
    if not vocabulary.merges:
        raise TokenizerError(
            "the GGUF has no tokenizer.ggml.merges, without which a gpt2 vocabulary cannot encode; "
            "use a newer conversion of the model"
        )
    split = pre_tokenizer(vocabulary.pre)
    # Padding rows of the embedding ("[PAD151999]") are no text: they must neither match nor print.
    ids = {
        token: token_id
        for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind != UNUSED
    }
    return document(
        added_tokens=_added_tokens(vocabulary, CONTROL, UNKNOWN, USER_DEFINED),
        normalizer=split.normalizer,
        pre_tokenizer=split.pre_tokenizer,
        post_processor=_surround(vocabulary, adds_bos=split.adds_bos),
        decoder=byte_level(use_regex=True),
        model=bpe_model(ids, vocabulary.merges, ignore_merges=split.ignore_merges),
    )


def _sentencepiece(vocabulary: GgufVocabulary) -> dict[str, Any]:
    if not vocabulary.scores:
        raise TokenizerError(
            "the GGUF has no tokenizer.ggml.scores, which order the merges of a llama vocabulary; "
            "use a newer conversion of the model"
        )
    unknown = 0 if vocabulary.unknown_id is None else vocabulary.unknown_id
    return document(
        added_tokens=_added_tokens(vocabulary, CONTROL, UNKNOWN, USER_DEFINED),
        normalizer=spm.normalizer(add_space_prefix=vocabulary.add_space_prefix),
        pre_tokenizer=None,
        post_processor=_surround(vocabulary, adds_bos=True),
        decoder=spm.decoder(add_space_prefix=vocabulary.add_space_prefix),
        model=bpe_model(
            {token: token_id for token_id, token in enumerate(vocabulary.tokens)},
            spm.merges(vocabulary),
            unknown=vocabulary.tokens[unknown],
            byte_fallback=True,
        ),
    )


def _added_tokens(vocabulary: GgufVocabulary, *kinds: int) -> list[dict[str, Any]]:
    return [
        added_token(
            token_id,
            vocabulary.tokens[token_id],
            special=vocabulary.types[token_id] != USER_DEFINED,
        )
        for token_id in vocabulary.ids_of_type(*kinds)
        if vocabulary.tokens[token_id]
    ]


def _surround(vocabulary: GgufVocabulary, *, adds_bos: bool) -> dict[str, Any] | None:
    wants_bos = adds_bos if vocabulary.add_bos is None else vocabulary.add_bos
    # Where the file is silent and names no BOS, the family's habit cannot be kept.
    required = bool(vocabulary.add_bos)
    bos = _named(vocabulary, vocabulary.bos_id, "bos", required=required) if wants_bos else None
    eos = _named(vocabulary, vocabulary.eos_id, "eos", required=True) if vocabulary.add_eos else None
    return surround(bos, eos)


def _named(vocabulary: GgufVocabulary, token_id: int | None, name: str, *, required: bool) -> Token | None:
    if token_id is not None:
        return vocabulary.tokens[token_id], token_id
    if required:
        raise TokenizerError(
            f"the GGUF says add_{name}_token but has no tokenizer.ggml.{name}_token_id; it is damaged"
        )
    return None
