"""Pieces by name. Expected splits follow from the published patterns by hand; the shared text has a
contraction, a digit run, Chinese, punctuation after a space, and space before a word and a newline."""

from __future__ import annotations

import json

import pytest
import tokenizers

from edgeseek.errors import TokenizerError
from edgeseek.tokenizer.pre_tokenizers import KNOWN, pre_tokenizer
from tests.unit.tokenizer.vocabularies import gpt2_alphabet

TEXT = "I'LL pay  $1234, 你好吗?\n\n  ok's"

SPLITS = {
    "gpt-2": ["I", "'", "LL", " pay", " ", " $", "1234", ",", " 你好吗", "?", "\n\n ", " ok", "'s"],
    "llama-bpe": ["I", "'LL", " pay", " ", " $", "123", "4", ",", " 你好吗", "?\n\n", " ", " ok", "'s"],
    "qwen2": ["I", "'LL", " pay", " ", " $", "1", "2", "3", "4", ",", " 你好吗", "?\n\n", " ", " ok", "'s"],
    "smollm": [
        *("I", "'", "LL", " pay", " ", " $", "1", "2", "3", "4", ",", " 你好吗", "?", "\n\n ", " ok", "'s"),
    ],
    "deepseek-llm": [
        *("I", "'", "LL", " pay", " ", " $", "1234", ",", " ", "你好吗", "?", "\n", "\n", " ", " ok"),
        *("'", "s"),
    ],
    "deepseek-coder": [
        *("I", "'", "LL", " pay", "  $", "1", "2", "3", "4", ",", " ", "你好吗"),
        *("?", "\n", "\n", " ", " ok"),
        *("'", "s"),
    ],
    "deepseek-v3": [
        *("I", "'LL", " pay", " ", " $", "123", "4", ",", " ", "你好吗", "?\n\n", " ", " ok", "'s"),
    ],
}
SPLITS["default"] = SPLITS["gpt-2"]
SPLITS["deepseek-r1-qwen"] = SPLITS["qwen2"]
SPLITS["llama3"] = SPLITS["llama-v3"] = SPLITS["llama-bpe"]


def pieces(name: str, text: str) -> list[str]:
    """The pieces of `text`, back in plain characters."""
    document: dict[str, object] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer(name).pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    split = tokenizers.Tokenizer.from_str(json.dumps(document)).pre_tokenizer
    assert split is not None
    byte_of = {character: byte for byte, character in enumerate(gpt2_alphabet())}
    return [bytes(map(byte_of.__getitem__, piece)).decode() for piece, _ in split.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_split(name: str) -> None:
    assert pieces(name, TEXT) == SPLITS[name]


def test_deepseek_llm_letters_are_those_with_case() -> None:
    assert pieces("deepseek-llm", "Ωж Жи") == ["Ωж", " Жи"]
    assert pieces("deepseek-llm", "Ωאω") == ["Ω", "א", "ω"]
    assert pieces("deepseek-llm", "ΩʰΩ") == ["Ω", "ʰ", "Ω"]
    # The published punctuation class runs from ":" to "~", so it takes ASCII letters away from others.
    assert pieces("deepseek-llm", "café") == ["caf", "é"]


def test_deepseek_v3_takes_one_punctuation_mark_into_a_word() -> None:
    assert pieces("deepseek-v3", "f.read(x)") == ["f", ".read", "(x", ")"]
    assert pieces("deepseek-v3", "カナ漢字abc") == ["カナ漢字", "abc"]


def test_trailing_space_is_one_piece() -> None:
    assert pieces("deepseek-llm", "a  ") == ["a", "  "]
    assert pieces("qwen2", "a  ") == ["a", "  "]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TokenizerError) as caught:
        pre_tokenizer("mystery")
    assert "'mystery'" in str(caught.value)
    assert all(name in str(caught.value) for name in KNOWN)
