from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeseek.checkpoints.base import TextAssets
from edgeseek.errors import TokenizerError
from edgeseek.tokenizer import Tokenizer, build_tokenizer_json, generation_defaults, special_tokens_of
from tests.unit.tokenizer.vocabularies import byte_vocabulary, r1, tokenizer_of

R1_TEXTS = r1()[1]


@pytest.mark.parametrize("text", R1_TEXTS)
def test_ids_equal_those_of_transformers(r1_tokenizer: Tokenizer, text: str) -> None:
    assert r1_tokenizer.encode(text) == R1_TEXTS[text]


def test_control_and_user_defined_tokens_are_matched_in_text() -> None:
    tokenizer = tokenizer_of(byte_vocabulary())
    bos, eos, tool = (tokenizer.token_to_id(token) for token in ("<bos>", "<eos>", "<tool>"))
    assert tokenizer.encode("a<bos><tool>b<eos>") == [97, bos, tool, 98, eos]
    assert [tokenizer.is_special(i or 0) for i in (bos, eos, tool, 97)] == [True, True, False, False]


def test_control_tokens_can_be_ordinary_text() -> None:
    tokenizer = tokenizer_of(byte_vocabulary("bos", "Ġb"))
    tool = tokenizer.token_to_id("<tool>")
    bos_word = tokenizer.token_to_id("bos")
    assert tokenizer.encode("<bos><tool> b", special=False) == [
        ord("<"),
        bos_word,
        ord(">"),
        tool,
        tokenizer.token_to_id("Ġb"),
    ]
    assert tokenizer.encode("", special=False) == []


def test_text_without_special_tokens_is_the_same_either_way(r1_tokenizer: Tokenizer) -> None:
    for text, ids in R1_TEXTS.items():
        if "<｜" not in text:
            assert r1_tokenizer.encode(text, special=False) == ids


def test_unused_rows_match_nothing() -> None:
    tokenizer = tokenizer_of(byte_vocabulary())
    assert tokenizer.encode("[PAD]") == list(b"[PAD]")


def test_ignore_merges_takes_whole_words_that_merges_cannot_make() -> None:
    metadata = byte_vocabulary(pre="llama-bpe", add_bos_token=False)
    metadata["tokenizer.ggml.tokens"][0:0] = ["xyz"]
    metadata["tokenizer.ggml.token_type"][0:0] = [1]
    metadata["tokenizer.ggml.bos_token_id"] += 1
    metadata["tokenizer.ggml.eos_token_id"] += 1
    assert tokenizer_of(metadata).encode("xyz") == [0]
    metadata["tokenizer.ggml.pre"] = "qwen2"
    assert tokenizer_of(metadata).encode("xyz") == [ord("x") + 1, ord("y") + 1, ord("z") + 1]


def test_qwen_composes_characters_first() -> None:
    composed, decomposed = "é", "e\u0301"
    qwen = tokenizer_of(byte_vocabulary(pre="qwen2"))
    gpt2 = tokenizer_of(byte_vocabulary(pre="gpt-2"))
    assert qwen.encode(decomposed) == list(composed.encode())
    assert gpt2.encode(decomposed) == list(decomposed.encode())


@pytest.mark.parametrize(
    ("pre", "says", "adds"),
    [("gpt-2", None, False), ("gpt-2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_bos_is_added_as_the_file_or_the_family_says(pre: str, says: bool | None, adds: bool) -> None:
    changes = {} if says is None else {"add_bos_token": says}
    tokenizer = tokenizer_of(byte_vocabulary(pre=pre, **changes))
    bos = tokenizer.token_to_id("<bos>")
    assert tokenizer.adds_bos is adds
    assert tokenizer.encode_prompt("a") == ([bos, 97] if adds else [97])
    assert tokenizer.encode("a") == [97]


def test_a_prompt_never_ends_in_eos_even_where_training_texts_did() -> None:
    tokenizer = tokenizer_of(byte_vocabulary(add_bos_token=True, add_eos_token=True))
    assert tokenizer.encode_prompt("a") == [tokenizer.token_to_id("<bos>"), 97]


def test_numpy_arrays_serve_as_metadata() -> None:
    metadata = byte_vocabulary()
    metadata["tokenizer.ggml.token_type"] = np.array(metadata["tokenizer.ggml.token_type"], np.int32)
    metadata["tokenizer.ggml.bos_token_id"] = np.uint32(metadata["tokenizer.ggml.bos_token_id"])
    assert tokenizer_of(metadata).encode("ab") == [97, 98]


def test_a_missing_pre_tokenizer_name_means_default() -> None:
    metadata = byte_vocabulary()
    del metadata["tokenizer.ggml.pre"]
    assert tokenizer_of(metadata).encode("a b") == list(b"a b")


def build(metadata: dict[str, Any]) -> bytes:
    return build_tokenizer_json(TextAssets(gguf_metadata=metadata))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pre": "no-such"}, r"'no-such'.*known are.*deepseek-coder.*smollm"),
        ({"model": "rwkv"}, r"'rwkv'.*gpt2.*llama"),
        ({"model": None}, r"no tokenizer\.ggml\.model"),
        ({"merges": []}, r"no tokenizer\.ggml\.merges"),
        ({"tokens": []}, r"empty tokenizer\.ggml\.tokens"),
        ({"tokens": "abc"}, r"tokens is not an array"),
        ({"token_type": [1, 1]}, r"tokens but 2 entries in tokenizer\.ggml\.token_type"),
        ({"bos_token_id": 10**6}, r"bos_token_id is 1000000"),
        ({"bos_token_id": "x"}, r"bos_token_id is 'x'"),
        ({"token_type": ["x"]}, r"token_type holds something other than numbers"),
        ({"bos_token_id": None, "add_bos_token": True}, r"add_bos_token but has no"),
        ({"model": "llama"}, r"no tokenizer\.ggml\.scores"),
    ],
)
def test_metadata_that_cannot_work_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        build(byte_vocabulary(**changes))


def test_a_merge_of_unknown_tokens_is_an_error_not_a_crash() -> None:
    with pytest.raises(TokenizerError, match="cannot be loaded"):
        tokenizer_of(byte_vocabulary(merges=["zz yy"]))
    with pytest.raises(TokenizerError, match="cannot be loaded"):
        tokenizer_of(byte_vocabulary(merges=["nospace"]))


ODD: st.SearchStrategy[object] = st.sampled_from(
    [None, -1, 2**40, 1.5, "", "a", "▁", b"\xff", "\ud800", [], {}, [["a", "b"]], True]
)
KEYS = [
    *byte_vocabulary(),
    *(f"tokenizer.ggml.{name}" for name in ("add_bos_token", "scores", "add_eos_token")),
]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), ODD, min_size=1, max_size=3), st.integers(0, 259), ODD)
def test_odd_metadata_works_or_is_refused(changes: dict[str, Any], index: int, value: object) -> None:
    metadata = byte_vocabulary()
    for name in ("tokens", "token_type"):
        metadata[f"tokenizer.ggml.{name}"][index] = value
        try:
            tokenizer = tokenizer_of({**metadata, **changes})
        except TokenizerError:
            continue
        assert isinstance(tokenizer.decode(tokenizer.encode_prompt("hello 你")), str)


def test_a_checkpoint_without_a_vocabulary_says_what_to_do() -> None:
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json"):
        build_tokenizer_json(TextAssets())


def test_all_ends_of_a_generation_are_known() -> None:
    metadata = byte_vocabulary()
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    tokens += ["<|im_end|>", "<|eot_id|>", "<|im_end|>"]
    types += [3, 3, 1]
    metadata["tokenizer.ggml.eot_token_id"] = 65
    special = special_tokens_of(TextAssets(gguf_metadata=metadata))
    count = len(tokens)
    assert special.bos_token_id == tokens.index("<bos>")
    assert special.eos_token_ids == (tokens.index("<eos>"), 65, count - 3, count - 2)
    assert generation_defaults(TextAssets(gguf_metadata=metadata)) == {
        "bos_token_id": special.bos_token_id,
        "eos_token_id": list(special.eos_token_ids),
    }


def test_r1_names_its_tokens(r1_tokenizer: Tokenizer) -> None:
    assert r1_tokenizer.bos_token == "<｜begin▁of▁sentence｜>"
    assert r1_tokenizer.eos_token == "<｜end▁of▁sentence｜>"
    assert r1_tokenizer.eos_token_ids[0] == 151643


def test_lone_surrogates_are_refused(r1_tokenizer: Tokenizer) -> None:
    for special in (True, False):
        with pytest.raises(TokenizerError, match="lone surrogate at character 1"):
            r1_tokenizer.encode("a\ud83d", special=special)
