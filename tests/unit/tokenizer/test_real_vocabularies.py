"""Whole vocabularies of real checkpoints, against libraries that share no code with ours.

The checkpoints are looked for in EDGESEEK_TEST_MODELS (see tests/conftest.py); the R1 vocabulary is
`deepseek-r1-distill-qwen-7b.vocab.gguf` there, a GGUF without tensors.
"""

from __future__ import annotations

import functools
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeseek.checkpoints import open_checkpoint
from edgeseek.checkpoints.base import TextAssets
from edgeseek.tokenizer import ChatTemplate, Tokenizer, chat_template_of
from tests.unit.tokenizer.vocabularies import r1, sentencepiece, tokenizer_of

pytestmark = pytest.mark.real_model

R1 = "deepseek-r1-distill-qwen-7b.vocab.gguf"
SMOLLM = "SmolLM2-135M-Instruct.Q4_1.gguf"
QWEN = "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf"

FRAGMENTS = [
    *("Hello", " world", "I'm", "we'LL", " don't", "it's", "DON'T", "x", " the", "Straße", "naïve", "é"),
    *(
        "你好",
        "世界。",
        "，今天",
        "天气很好",
        "日本語",
        "カタカナ",
        "한국어",
        "Привет",
        "שלום",
        "مرحبا",
        "हिन्दी",
    ),
    *("😀", "👍🏽", "👨‍👩‍👧", "🇺🇸", "❤️", "½", "Ⅷ", "٣٤", "1", "12", "123", "1234567", "3.14"),
    *(" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\u00a0", "\u3000", "\u200b"),
    *(
        "def f(x):",
        "    return",
        "if (a && b) {",
        "}",
        "->",
        "::",
        "!=",
        "/*",
        "#include",
        "<|",
        "|>",
        "$",
        "_",
    ),
]


def texts() -> list[str]:
    """The fixture's texts without special tokens, and a hundred random mixes."""
    draw = random.Random(20)
    mixes = ["".join(draw.choices(FRAGMENTS, k=draw.randint(1, 30))) for _ in range(100)]
    plain = [text for text in r1()[1] if "<" not in text]
    return [unicodedata.normalize("NFC", text) for text in plain + mixes]


@functools.cache
def metadata_of(path: Path) -> dict[str, Any]:
    with open_checkpoint(path) as checkpoint:
        return dict(checkpoint.text_assets.gguf_metadata)


@functools.cache
def tokenizer_at(path: Path) -> Tokenizer:
    return tokenizer_of(metadata_of(path))


def test_r1_begins_with_one_bos(test_model: Callable[[str], Path]) -> None:
    metadata, tokenizer = metadata_of(test_model(R1)), tokenizer_at(test_model(R1))
    source = chat_template_of(TextAssets(gguf_metadata=metadata))
    assert source is not None
    text = ChatTemplate(source, bos_token=tokenizer.bos_token).render([{"role": "user", "content": "hello"}])
    assert tokenizer.encode_prompt(text)[:3] == [151646, 151644, 14990]
    assert {text: tokenizer.encode(text) for text in r1()[1]} == r1()[1]


@pytest.mark.parametrize("name", [R1, SMOLLM, QWEN])
def test_texts_survive_and_bytes_are_whole(test_model: Callable[[str], Path], name: str) -> None:
    tokenizer = tokenizer_at(test_model(name))
    for text in texts():
        ids = tokenizer.encode(text)
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
        assert tokenizer.encode(text, special=False) == ids


@pytest.mark.reference
@pytest.mark.parametrize("name", [R1, QWEN])
def test_qwen_vocabularies_equal_transformers(test_model: Callable[[str], Path], name: str) -> None:
    transformers = pytest.importorskip("transformers")
    metadata = metadata_of(test_model(name))
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    end = tokens[metadata["tokenizer.ggml.eos_token_id"]]
    reference = transformers.Qwen2Tokenizer(
        vocab={token: i for i, token in enumerate(tokens) if types[i] != 5},
        merges=[tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]],
        eos_token=end,
        pad_token=end,
        unk_token=None,
    )
    tokenizer = tokenizer_at(test_model(name))
    for text in texts():
        assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False), text


@pytest.mark.reference
@pytest.mark.parametrize("name", [R1, SMOLLM, QWEN])
def test_ids_equal_llama_cpp(test_model: Callable[[str], Path], name: str) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    path = test_model(name)
    reference = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    tokenizer = tokenizer_at(path)
    for text in texts():
        expected = reference.tokenize(text.encode(), add_bos=False, special=False)
        assert tokenizer.encode(text) == expected, text
        assert tokenizer.encode_prompt(text) == reference.tokenize(text.encode(), add_bos=True), text


@pytest.mark.reference
def test_sentencepiece_itself_agrees_on_random_texts(tmp_path: Path) -> None:
    trainer = pytest.importorskip("sentencepiece")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(texts() * 3), encoding="utf-8")
    trainer.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(tmp_path / "model"),
        vocab_size=900,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    model = trainer.SentencePieceProcessor(model_file=str(tmp_path / "model.model"))
    ids = range(model.get_piece_size())
    metadata = {
        **sentencepiece()[0],
        "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [model.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": [
            2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1
            for i in ids
        ],
    }
    tokenizer: Tokenizer = tokenizer_of(metadata)
    for text in texts():
        assert tokenizer.encode(text) == model.encode(text), text
        assert tokenizer.decode(tokenizer.encode(text)) == text
