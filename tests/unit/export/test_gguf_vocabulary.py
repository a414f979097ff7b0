"""A tokenizer.json becomes GGUF metadata that encodes alike, or is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgeseek.errors import TokenizerError
from edgeseek.export.gguf_vocabulary import vocabulary_metadata
from edgeseek.tokenizer import SpecialTokens
from edgeseek.tokenizer.from_gguf import tokenizer_json_from_gguf
from tests.unit.tokenizer.vocabularies import byte_vocabulary, r1, sentencepiece, tokenizer_of

SPECIAL = SpecialTokens(1, (2,))


def round_trip(metadata: dict[str, Any], special: SpecialTokens = SPECIAL) -> dict[str, Any]:
    """GGUF → tokenizer.json → GGUF."""
    rows = len(metadata["tokenizer.ggml.tokens"])
    return vocabulary_metadata(tokenizer_json_from_gguf(metadata), special, rows, None)


def kept(before: dict[str, Any], after: dict[str, Any], *names: str) -> bool:
    return all(after[f"tokenizer.ggml.{name}"] == before[f"tokenizer.ggml.{name}"] for name in names)


def test_a_byte_level_vocabulary_comes_back_as_it_was() -> None:
    before = byte_vocabulary("the", "hello", pre="qwen2", add_bos_token=True)
    after = round_trip(before, SpecialTokens(None, (before["tokenizer.ggml.eos_token_id"],)))
    names = (
        "model",
        "token_type",
        "merges",
        "pre",
        "bos_token_id",
        "eos_token_id",
        "add_bos_token",
    )
    assert kept(before, after, *names)
    # The last row is unused, so its text is ours to choose.
    assert after["tokenizer.ggml.tokens"][:-1] == before["tokenizer.ggml.tokens"][:-1]


@pytest.mark.parametrize(
    "pre", ["gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "deepseek-coder", "deepseek-v3"]
)
def test_each_pre_tokenizer_is_recognised_by_its_splits(pre: str) -> None:
    assert round_trip(byte_vocabulary("the", pre=pre))["tokenizer.ggml.pre"] == pre


def test_deepseek_r1_s_vocabulary_encodes_alike() -> None:
    before, expected = r1()
    after = round_trip(before, SpecialTokens(151646, (151643,)))
    assert kept(before, after, "tokens", "token_type", "merges", "bos_token_id", "eos_token_id")
    tokenizer = tokenizer_of(after)
    for text, ids in expected.items():
        assert tokenizer.encode(text) == ids


def test_a_sentencepiece_vocabulary_encodes_alike() -> None:
    before, expected = sentencepiece()
    after = round_trip(before)
    assert kept(before, after, "model", "tokens", "token_type")
    assert after["tokenizer.ggml.add_bos_token"] is True
    assert after["tokenizer.ggml.add_space_prefix"] is True
    assert after["tokenizer.ggml.unknown_token_id"] == 0
    tokenizer = tokenizer_of(after)
    for text, ids in expected.items():
        assert tokenizer.encode(text) == ids


def test_an_end_that_is_added_is_said() -> None:
    after = round_trip(byte_vocabulary("the", add_bos_token=True, add_eos_token=True))
    assert after["tokenizer.ggml.add_bos_token"] is True
    assert after["tokenizer.ggml.add_eos_token"] is True


def test_further_ends_are_end_of_turn_and_of_message() -> None:
    after = round_trip(byte_vocabulary("the"), SpecialTokens(None, (5, 6, 7)))
    assert [after[f"tokenizer.ggml.{name}_token_id"] for name in ("eos", "eot", "eom")] == [5, 6, 7]
    assert "tokenizer.ggml.bos_token_id" not in after


def test_a_split_that_has_no_name_is_refused() -> None:
    document = json.loads(tokenizer_json_from_gguf(byte_vocabulary("the")))
    split = {"type": "Split", "pattern": {"Regex": "[aeiou]"}, "behavior": "Isolated", "invert": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, document["pre_tokenizer"]]}
    with pytest.raises(TokenizerError, match="none of the ways that GGUF names"):
        vocabulary_metadata(json.dumps(document).encode(), SPECIAL, 1000, None)


def test_a_normalizer_that_gguf_cannot_say_is_refused() -> None:
    document = json.loads(tokenizer_json_from_gguf(byte_vocabulary("the", "Hello")))
    document["normalizer"] = {"type": "Lowercase"}
    with pytest.raises(TokenizerError, match='would encode "Hello world'):
        vocabulary_metadata(json.dumps(document).encode(), SPECIAL, 1000, None)


def test_more_tokens_than_rows_are_refused() -> None:
    with pytest.raises(TokenizerError, match="100 rows of embeddings"):
        vocabulary_metadata(tokenizer_json_from_gguf(byte_vocabulary("the")), SPECIAL, 100, None)


def test_rows_without_a_token_are_padding() -> None:
    before = byte_vocabulary("the")
    count = len(before["tokenizer.ggml.tokens"])
    after = vocabulary_metadata(tokenizer_json_from_gguf(before), SPECIAL, count + 2, "{{ x }}")
    assert after["tokenizer.ggml.tokens"][-1] == f"[PAD{count + 1}]"
    assert after["tokenizer.ggml.token_type"][-3:] == [5, 5, 5]
    assert after["tokenizer.chat_template"] == "{{ x }}"


def test_another_model_than_bpe_is_refused() -> None:
    document = {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}
    with pytest.raises(TokenizerError, match="kind 'Unigram'"):
        vocabulary_metadata(json.dumps(document).encode(), SPECIAL, 10, None)
