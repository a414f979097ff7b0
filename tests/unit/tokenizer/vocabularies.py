"""Vocabularies for these tests, as the metadata of a GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgeseek.checkpoints.base import TextAssets
from edgeseek.tokenizer import Tokenizer, build_tokenizer_json, special_tokens_of

FIXTURES = Path(__file__).parents[2] / "fixtures"


def r1() -> tuple[dict[str, Any], dict[str, list[int]]]:
    """DeepSeek-R1-Distill-Qwen's metadata with true ids (tokens the tests don't touch are unused rows),
    and the ids of some texts by `transformers` over the whole vocabulary."""
    stored = json.loads((FIXTURES / "r1_vocabulary.json").read_text(encoding="utf-8"))
    tokens = [f"[PAD{token_id}]" for token_id in range(stored["size"])]
    types = [5] * len(tokens)
    for token_id, (token, kind) in stored["tokens"].items():
        tokens[int(token_id)], types[int(token_id)] = token, kind
    metadata = {
        **stored["metadata"],
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": stored["merges"],
    }
    return metadata, stored["expected"]


def sentencepiece() -> tuple[dict[str, Any], dict[str, list[int]]]:
    """A small SentencePiece model's metadata and the ids of some texts by `sentencepiece`."""
    stored = json.loads((FIXTURES / "sentencepiece_vocabulary.json").read_text(encoding="utf-8"))
    return stored["metadata"], stored["expected"]


def byte_vocabulary(*words: str, pre: str = "gpt-2", **changes: Any) -> dict[str, Any]:
    """All bytes as ids 0..255, then `words` (each made by merges of its characters, left to right),
    then <bos>, <eos> (control), <tool> (user-defined) and one unused row."""
    alphabet = gpt2_alphabet()
    tokens = list(alphabet)
    merges = []
    for word in words or ("~|",):  # without any merge a vocabulary is refused
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens:
                tokens.append(word[:end])
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    types = [1] * len(tokens) + [3, 3, 4, 5]
    tokens += ["<bos>", "<eos>", "<tool>", "[PAD]"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": tokens.index("<bos>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<eos>"),
        **{f"tokenizer.ggml.{name}": value for name, value in changes.items()},
    }


def gpt2_alphabet() -> list[str]:
    """Character of each byte, written independently of the code under test."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) if byte in plain else chr(256 + rest.index(byte)) for byte in range(256)]


def tokenizer_of(metadata: dict[str, Any]) -> Tokenizer:
    """The tokenizer of GGUF metadata, with its special tokens, as a package would load it."""
    assets = TextAssets(gguf_metadata=metadata)
    special = special_tokens_of(assets)
    return Tokenizer.from_json(
        build_tokenizer_json(assets),
        bos_token_id=special.bos_token_id,
        eos_token_ids=special.eos_token_ids,
    )
