from __future__ import annotations

import json

import pytest

from edgeseek.checkpoints.base import TextAssets
from edgeseek.errors import TokenizerError
from edgeseek.tokenizer import Tokenizer, build_tokenizer_json
from edgeseek.tokenizer.pieces import piece_rules
from tests.unit.tokenizer.vocabularies import byte_vocabulary, gpt2_alphabet, tokenizer_of


def test_every_byte_has_its_character() -> None:
    rules = piece_rules({"type": "ByteLevel"})
    assert [rules.to_bytes(character) for character in gpt2_alphabet()] == [bytes([b]) for b in range(256)]
    assert rules.to_bytes("Ġhello") == b" hello"
    assert rules.to_bytes("Ċ") == b"\n"


def test_a_byte_level_piece_with_a_foreign_character_is_literal() -> None:
    assert piece_rules({"type": "ByteLevel"}).to_bytes("Ġ你") == "Ġ你".encode()


def test_added_tokens_are_their_literal_text(r1_tokenizer: Tokenizer) -> None:
    assert r1_tokenizer.token_bytes(151646) == "<｜begin▁of▁sentence｜>".encode()
    assert r1_tokenizer.token_bytes(151648) == b"<think>"
    # An added token whose text happens to be spelled in the byte alphabet is not mapped.
    metadata = byte_vocabulary()
    metadata["tokenizer.ggml.tokens"][-2] = "Ġtool"
    assert tokenizer_of(metadata).token_bytes(len(metadata["tokenizer.ggml.tokens"]) - 2) == "Ġtool".encode()


def test_byte_fallback_and_spaces_of_sentencepiece(spm_tokenizer: Tokenizer) -> None:
    assert spm_tokenizer.token_bytes(spm_tokenizer.token_to_id("<0x0A>") or 0) == b"\n"
    assert spm_tokenizer.token_bytes(spm_tokenizer.token_to_id("<0xE4>") or 0) == b"\xe4"
    assert spm_tokenizer.token_bytes(spm_tokenizer.token_to_id("▁") or 0) == b" "
    assert spm_tokenizer.token_bytes(1) == b"<s>"


def test_padding_rows_and_ids_beyond_the_vocabulary_are_empty(r1_tokenizer: Tokenizer) -> None:
    assert r1_tokenizer.vocab_size == 151665
    assert r1_tokenizer.token_bytes(152063) == b""
    assert r1_tokenizer.id_to_token(152063) is None
    assert r1_tokenizer.token_bytes(10**6) == b""


def test_negative_ids_are_refused(r1_tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="-1 is negative"):
        r1_tokenizer.token_bytes(-1)


def test_decode_strips_the_space_that_sentencepiece_adds(spm_tokenizer: Tokenizer) -> None:
    ids = spm_tokenizer.encode("Hello world")
    assert b"".join(map(spm_tokenizer.token_bytes, ids)) == b" Hello world"
    assert spm_tokenizer.decode(ids) == "Hello world"
    assert spm_tokenizer.decode(ids, continues=True) == " Hello world"


def test_special_tokens_can_be_left_out(r1_tokenizer: Tokenizer) -> None:
    ids = r1_tokenizer.encode("<｜User｜>hi<｜Assistant｜><think>")
    assert r1_tokenizer.decode(ids) == "<｜User｜>hi<｜Assistant｜><think>"
    assert r1_tokenizer.decode(ids, skip_special=True) == "hi<think>"


def test_ids_with_holes_have_the_right_size() -> None:
    metadata = byte_vocabulary()
    metadata["tokenizer.ggml.token_type"][10] = 5
    tokenizer = tokenizer_of(metadata)
    assert tokenizer.vocab_size == 260
    assert tokenizer.token_bytes(10) == b""


@pytest.mark.parametrize(
    ("decoder", "name"),
    [({"type": "WordPiece", "prefix": "##", "cleanup": True}, "WordPiece"), ({"type": "CTC"}, "CTC")],
)
def test_a_decoder_without_bytes_is_named(decoder: dict[str, object], name: str) -> None:
    with pytest.raises(TokenizerError, match=name):
        piece_rules(decoder)


def test_metaspace_strips_unless_it_never_prepends() -> None:
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
    assert piece_rules(metaspace).strip_left == 1
    assert piece_rules({**metaspace, "prepend_scheme": "never"}).strip_left == 0
    assert piece_rules(metaspace).to_bytes("▁a") == b" a"


def test_broken_json_is_named() -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be loaded"):
        Tokenizer.from_json(b"{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be loaded"):
        Tokenizer.from_json(json.dumps({"version": "1.0", "model": {"type": "?"}}).encode())


def test_truncation_and_padding_of_a_training_run_are_dropped() -> None:
    document = json.loads(build_tokenizer_json(TextAssets(gguf_metadata=byte_vocabulary())))
    document["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    tokenizer = Tokenizer.from_json(json.dumps(document).encode())
    assert tokenizer.encode("abcdefgh") == list(b"abcdefgh")
