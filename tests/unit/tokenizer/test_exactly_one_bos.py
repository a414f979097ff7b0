from __future__ import annotations

import pytest

from edgeseek.checkpoints.base import TextAssets
from edgeseek.tokenizer import ChatTemplate, Tokenizer, chat_template_of
from tests.unit.tokenizer.vocabularies import r1

BOS, USER, ASSISTANT, HELLO = 151646, 151644, 151645, 14990


def test_a_template_that_begins_with_bos_gets_no_second(r1_tokenizer: Tokenizer) -> None:
    source = chat_template_of(TextAssets(gguf_metadata=r1()[0]))
    assert source is not None
    template = ChatTemplate(source, bos_token=r1_tokenizer.bos_token, eos_token=r1_tokenizer.eos_token)
    text = template.render([{"role": "user", "content": "hello"}])
    assert text == "<｜begin▁of▁sentence｜><｜User｜>hello<｜Assistant｜>"
    ids = r1_tokenizer.encode_prompt(text)
    assert ids[:3] == [151646, 151644, 14990]
    assert ids == [BOS, USER, HELLO, ASSISTANT]


def test_a_raw_prompt_gets_its_bos(r1_tokenizer: Tokenizer) -> None:
    assert r1_tokenizer.encode_prompt("hello") == [BOS, HELLO]
    assert r1_tokenizer.encode_prompt("") == [BOS]


def test_encode_alone_adds_none(r1_tokenizer: Tokenizer) -> None:
    assert r1_tokenizer.encode("hello") == [HELLO]


@pytest.mark.parametrize("text", ["<｜begin▁of▁sentence｜>hello", "hello"])
def test_bos_comes_once_however_it_is_asked_for(r1_tokenizer: Tokenizer, text: str) -> None:
    assert r1_tokenizer.encode_prompt(text).count(BOS) == 1
