from __future__ import annotations

import pytest

from edgeseek.tokenizer import Tokenizer
from tests.unit.tokenizer.vocabularies import sentencepiece, tokenizer_of

TEXTS = sentencepiece()[1]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_equal_those_of_sentencepiece(spm_tokenizer: Tokenizer, text: str) -> None:
    assert spm_tokenizer.encode(text) == TEXTS[text]


@pytest.mark.parametrize("text", TEXTS)
def test_decode_gives_the_text_back(spm_tokenizer: Tokenizer, text: str) -> None:
    assert spm_tokenizer.decode(spm_tokenizer.encode(text)) == text


def test_bos_is_added_unless_the_file_says_no() -> None:
    metadata, expected = sentencepiece()
    assert tokenizer_of(metadata).encode_prompt("Hello world") == [1, *expected["Hello world"]]
    assert tokenizer_of(metadata).encode_prompt("<s>Hello world") == [1, *expected["Hello world"]]
    metadata["tokenizer.ggml.add_bos_token"] = False
    assert tokenizer_of(metadata).encode_prompt("Hello world") == expected["Hello world"]


def test_without_a_space_prefix_nothing_is_added_or_stripped() -> None:
    metadata, _ = sentencepiece()
    metadata["tokenizer.ggml.add_space_prefix"] = False
    tokenizer = tokenizer_of(metadata)
    for text in ("Hello", " Hello", "  a"):
        ids = tokenizer.encode(text)
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
        assert tokenizer.decode(ids) == text


def test_unknown_characters_fall_back_to_bytes(spm_tokenizer: Tokenizer) -> None:
    ids = spm_tokenizer.encode("龘")
    assert [spm_tokenizer.id_to_token(i) for i in ids] == ["▁", "<0xE9>", "<0xBE>", "<0x98>"]


def test_merges_follow_scores_not_ids() -> None:
    tokens = ["<unk>", "<s>", "</s>", "▁", "a", "b", "c", "ab", "bc"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0, 0, 0, -9, -9, -9, -9, -2, -1],
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1, 1],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
    }
    tokenizer = tokenizer_of(metadata)
    assert [tokenizer.id_to_token(i) for i in tokenizer.encode("abc")] == ["▁", "a", "bc"]
    # Without byte tokens a character outside the vocabulary is the unknown token.
    assert tokenizer.encode("aza") == [3, 4, 0, 4]


def test_a_control_token_is_never_made_by_merging(spm_tokenizer: Tokenizer) -> None:
    ids = spm_tokenizer.encode("a</s>", special=False)
    assert 2 not in ids
    assert spm_tokenizer.decode(ids) == "a</s>"
    assert spm_tokenizer.encode("a</s>")[-1] == 2
