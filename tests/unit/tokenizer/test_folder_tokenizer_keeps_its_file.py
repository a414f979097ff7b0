from __future__ import annotations

import json
from typing import Any

import pytest

from edgeseek.checkpoints.base import TextAssets
from edgeseek.errors import ChatTemplateError, TokenizerError
from edgeseek.tokenizer import (
    Tokenizer,
    build_tokenizer_json,
    chat_template_of,
    generation_defaults,
    special_tokens_of,
)
from tests.unit.tokenizer.vocabularies import byte_vocabulary

BOS, EOS = 258, 259


def document(**changes: Any) -> dict[str, Any]:
    """A GPT-2 style tokenizer.json with <bos> 258 and <eos> 259."""
    metadata = byte_vocabulary("ab")
    metadata["tokenizer.ggml.tokens"].insert(257, "ac")
    metadata["tokenizer.ggml.token_type"].insert(257, 1)
    metadata["tokenizer.ggml.bos_token_id"] = BOS
    metadata["tokenizer.ggml.eos_token_id"] = EOS
    made = json.loads(build_tokenizer_json(TextAssets(gguf_metadata=metadata)))
    return {**made, **changes}


def template(*, bos: bool) -> dict[str, Any]:
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    special = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [special, sequence] if bos else [sequence],
        "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [BOS], "tokens": ["<bos>"]}},
    }


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}


@pytest.mark.parametrize(
    ("processor", "config", "adds_bos"),
    [
        (None, {}, False),
        (template(bos=True), {}, True),
        (template(bos=True), {"add_bos_token": True}, True),
        (template(bos=True), {"add_bos_token": False}, False),
        (BYTE_LEVEL, {"add_bos_token": True}, True),
        (BYTE_LEVEL, {"add_bos_token": False}, False),
        (None, {"add_bos_token": True}, True),
        ({"type": "Sequence", "processors": [BYTE_LEVEL, template(bos=True)]}, {}, True),
        (
            {"type": "Sequence", "processors": [BYTE_LEVEL, template(bos=True)]},
            {"add_bos_token": False},
            False,
        ),
        (None, {"tokenizer_class": "LlamaTokenizerFast"}, True),
        (BYTE_LEVEL, {"tokenizer_class": "LlamaTokenizerFast"}, False),
        (None, {"tokenizer_class": "PreTrainedTokenizerFast"}, False),
    ],
)
def test_bos_policy(processor: Any, config: dict[str, Any], adds_bos: bool) -> None:
    config = {"bos_token": "<bos>", "eos_token": {"content": "<eos>"}, **config}
    data = json.dumps(document(post_processor=processor), indent=2).encode()
    built = build_tokenizer_json(TextAssets(tokenizer_json=data, tokenizer_config=config))
    tokenizer = Tokenizer.from_json(built)
    assert tokenizer.adds_bos is adds_bos
    assert tokenizer.encode_prompt("ab") == ([BOS, 256] if adds_bos else [256])


def test_the_class_name_does_not_replace_the_split() -> None:
    data = json.dumps(document()).encode()
    as_it_is = Tokenizer.from_json(data).encode("it's 1234 ab")
    for name in ("Qwen2Tokenizer", "LlamaTokenizerFast", "GPT2Tokenizer"):
        config = {"tokenizer_class": name, "bos_token": "<bos>"}
        built = build_tokenizer_json(TextAssets(tokenizer_json=data, tokenizer_config=config))
        assert Tokenizer.from_json(built).encode("it's 1234 ab") == as_it_is


def test_everything_but_the_post_processor_is_kept() -> None:
    before = document(post_processor=BYTE_LEVEL)
    before["model"]["merges"] = [merge.split(" ") for merge in before["model"]["merges"]]
    config = {"add_bos_token": True, "bos_token": "<bos>"}
    assets = TextAssets(tokenizer_json=json.dumps(before, indent=1).encode(), tokenizer_config=config)
    after = json.loads(build_tokenizer_json(assets))
    for made in (before, after):
        del made["post_processor"]
    after["model"]["merges"] = [merge.split(" ") for merge in after["model"]["merges"]]
    assert after == before


def test_merges_of_tokens_with_spaces_stay_pairs() -> None:
    before = document()
    before["model"]["vocab"].update({"x y": 300, "x yz": 301, "z ": 302})
    before["model"]["merges"] = [["x y", "z"], ["a", "b"]]
    after = json.loads(build_tokenizer_json(TextAssets(tokenizer_json=json.dumps(before).encode())))
    assert after["model"]["merges"] == before["model"]["merges"]


@pytest.mark.parametrize(
    ("data", "config", "message"),
    [
        (b"{", {}, "not valid JSON"),
        (b"[]", {}, "no model"),
        (b'{"version": "1.0"}', {}, "no model"),
        (None, {"add_bos_token": True}, "names no bos_token"),
        (
            None,
            {"add_bos_token": True, "bos_token": "<nope>"},
            "'<nope>', which tokenizer.json does not have",
        ),
        (b'{"model": {}, "post_processor": {}}', {"add_bos_token": True, "bos_token": "x"}, "malformed part"),
    ],
)
def test_broken_files_are_named(data: bytes | None, config: dict[str, Any], message: str) -> None:
    data = json.dumps(document()).encode() if data is None else data
    with pytest.raises(TokenizerError, match=message):
        build_tokenizer_json(TextAssets(tokenizer_json=data, tokenizer_config=config))


def test_a_template_with_an_unknown_token_is_refused_before_the_library_panics() -> None:
    processor = template(bos=True)
    processor["special_tokens"] = {}
    with pytest.raises(TokenizerError, match="malformed part"):
        build_tokenizer_json(
            TextAssets(tokenizer_json=json.dumps(document(post_processor=processor)).encode())
        )


@pytest.mark.parametrize("affix", ["continuing_subword_prefix", "end_of_word_suffix"])
def test_subword_affixes_are_refused_unless_empty(affix: str) -> None:
    made = document()
    made["model"][affix] = ""
    built = build_tokenizer_json(TextAssets(tokenizer_json=json.dumps(made).encode()))
    assert Tokenizer.from_json(built).encode("ab") == [256]
    made["model"][affix] = "##"
    with pytest.raises(TokenizerError, match=affix):
        build_tokenizer_json(TextAssets(tokenizer_json=json.dumps(made).encode()))


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer_config": {"added_tokens_decoder": {"x": {"content": "a"}}}},
        {"tokenizer_config": {"added_tokens_decoder": 3}},
        {"tokenizer_json": b'{"model": {}, "added_tokens": [{"id": 1}]}'},
        {"generation_config": {"eos_token_id": "no"}},
    ],
)
def test_malformed_special_tokens_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(TokenizerError, match="malformed"):
        special_tokens_of(TextAssets(**changes))


def test_the_tokenizers_word_on_bos_and_eos_comes_first() -> None:
    assets = TextAssets(
        tokenizer_json=json.dumps(document()).encode(),
        tokenizer_config={"bos_token": {"content": "<bos>"}, "eos_token": "<eos>"},
        generation_config={"bos_token_id": 7, "eos_token_id": [8, EOS], "temperature": 0.6},
    )
    special = special_tokens_of(assets)
    assert (special.bos_token_id, special.eos_token_ids) == (BOS, (EOS, 8))
    assert generation_defaults(assets) == {
        "bos_token_id": BOS,
        "eos_token_id": [EOS, 8],
        "temperature": 0.6,
    }


def test_without_named_tokens_the_generation_config_decides() -> None:
    assets = TextAssets(
        tokenizer_json=json.dumps(document()).encode(),
        generation_config={"bos_token_id": 7, "eos_token_id": 8},
    )
    assert special_tokens_of(assets).bos_token_id == 7
    assert special_tokens_of(assets).eos_token_ids == (8,)
    assert generation_defaults(TextAssets()) == {}


@pytest.mark.parametrize(
    ("assets", "expected"),
    [
        (TextAssets(chat_template="file"), "file"),
        (TextAssets(), None),
        (TextAssets(gguf_metadata={"tokenizer.chat_template": "gguf"}), "gguf"),
        (TextAssets(gguf_metadata={"tokenizer.ggml.model": "gpt2"}), None),
    ],
)
def test_the_default_chat_template_is_found(assets: TextAssets, expected: str | None) -> None:
    assert chat_template_of(assets) == expected


def test_a_chat_template_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(ChatTemplateError, match="lone surrogate at character 1"):
        chat_template_of(TextAssets(chat_template="x\ud800"))
