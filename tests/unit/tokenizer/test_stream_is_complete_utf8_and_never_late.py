from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeseek.tokenizer import StreamDecoder, Tokenizer

TOKENS = {
    0: b"\xf0\x9f",
    1: b"\x98",
    2: b"\x80 \xe4",
    3: b"\xbd\xa0",
    4: b"\xe5\xa5",
    5: b"\xef\xbf\xbd",
    6: b"",
    7: b"ok",
    8: b"\xff",
}


def test_characters_leave_when_their_last_byte_arrives() -> None:
    decoder = StreamDecoder(TOKENS.__getitem__)
    assert [decoder.push(token) for token in range(5)] == ["", "", "😀 ", "你", ""]
    assert decoder.pending == b"\xe5\xa5"
    assert decoder.finish() == "\ufffd"


def test_a_literal_replacement_character_passes_at_once() -> None:
    decoder = StreamDecoder(TOKENS.__getitem__)
    assert decoder.push(5) == "\ufffd"
    assert decoder.pending == b""
    assert decoder.finish() == ""


def test_an_invalid_byte_is_replaced_at_once() -> None:
    decoder = StreamDecoder(TOKENS.__getitem__)
    assert [decoder.push(token) for token in (7, 8, 7)] == ["ok", "\ufffd", "ok"]


def test_a_broken_character_is_replaced_when_the_next_begins() -> None:
    decoder = StreamDecoder(TOKENS.__getitem__)
    assert [decoder.push(token) for token in (4, 7)] == ["", "\ufffdok"]


def test_impossible_second_bytes_are_not_waited_for() -> None:
    decoder = StreamDecoder(TOKENS.__getitem__)
    for surrogate_or_overlong in (b"\xed\xa0", b"\xe0\x80", b"\xf4\x90", b"\xf0\x80", b"\xc0"):
        expected = surrogate_or_overlong.decode("utf-8", "replace")
        assert decoder.push_bytes(surrogate_or_overlong) == expected
        assert decoder.pending == b""


def test_a_finished_decoder_starts_anew() -> None:
    decoder = StreamDecoder(TOKENS.__getitem__, strip_left=1)
    assert decoder.push_bytes(b" a\xe4") == "a"
    assert decoder.finish() == "\ufffd"
    assert decoder.push_bytes(b" b") == "b"


# Bytes that make valid, broken and nearly valid UTF-8 far more often than uniform ones.
PIECES = st.lists(
    st.one_of(
        st.binary(max_size=5),
        st.text(max_size=3).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.sampled_from([bytes([byte]) for byte in b"\xe4\xbd\xa0\xf0\x9f\x98\x80\xed\xa0\xc0\xffa"]),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(PIECES)
def test_stream_equals_decoding_the_whole(pieces: list[bytes]) -> None:
    decoder = StreamDecoder(TOKENS.__getitem__)
    texts = [decoder.push_bytes(piece) for piece in pieces]
    assert "".join(texts) + decoder.finish() == b"".join(pieces).decode("utf-8", "replace")


@settings(deadline=None)
@given(PIECES)
def test_nothing_complete_is_held_back(pieces: list[bytes]) -> None:
    decoder = StreamDecoder(TOKENS.__getitem__)
    seen = b""
    shown = ""
    for piece in pieces:
        seen += piece
        shown += decoder.push_bytes(piece)
        # What is held is the beginning of one character that some next byte can continue.
        held = decoder.pending
        assert len(held) <= 3
        assert shown == seen[: len(seen) - len(held)].decode("utf-8", "replace")
        if held:
            assert any(can_begin(held, end) for end in COMPLETIONS)


COMPLETIONS = [
    bytes([first, *rest])
    for first in (0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF)
    for rest in (b"", b"\x80", b"\x80\x80")
]


def can_begin(held: bytes, end: bytes) -> bool:
    try:
        return len((held + end).decode()) == 1
    except UnicodeDecodeError:
        return False


@pytest.fixture(scope="module")
def known_ids(r1_tokenizer: Tokenizer, spm_tokenizer: Tokenizer) -> list[tuple[Tokenizer, list[int]]]:
    return [
        (tokenizer, [i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i)])
        for tokenizer in (r1_tokenizer, spm_tokenizer)
    ]


@settings(deadline=None)
@given(st.data())
def test_random_ids_stream_as_they_decode(
    known_ids: list[tuple[Tokenizer, list[int]]], data: st.DataObject
) -> None:
    tokenizer, known = data.draw(st.sampled_from(known_ids))
    ids = data.draw(st.lists(st.sampled_from(known), max_size=40))
    for continues in (True, False):
        decoder = tokenizer.stream(continues=continues)
        text = "".join(map(decoder.push, ids)) + decoder.finish()
        assert text == tokenizer.decode(ids, continues=continues)
    whole = b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace")
    assert tokenizer.decode(ids, continues=True) == whole
