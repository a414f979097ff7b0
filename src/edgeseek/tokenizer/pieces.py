"""From a token's spelling in the vocabulary to the raw bytes it stands for.

Owns the GPT-2 byte alphabet (Radford et al., 2019: every byte has a printable character) and the
reading of a tokenizer.json `decoder`. Knows nothing of ids, text or streams.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeseek.errors import TokenizerError

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """Character -> byte of the GPT-2 alphabet.

    Printable Latin-1 bytes stand for themselves; the other 68 are numbered from U+0100 upwards.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + order): byte for order, byte in enumerate(hidden)})
    return alphabet


@dataclass(frozen=True)
class PieceRules:
    """How spellings become bytes, as a tokenizer.json decoder says.

    `alphabet` is set for byte-level vocabularies. `byte_fallback` reads `<0xNN>` as that byte.
    `replacements` (SentencePiece: "▁" -> " ") apply to all other pieces. `strip_left` is how many
    leading spaces a whole decoded text loses: SentencePiece puts one before the first word.
    """

    alphabet: Mapping[str, int] | None = None
    byte_fallback: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    strip_left: int = 0

    def to_bytes(self, piece: str) -> bytes:
        """Bytes of an ordinary piece; a byte-level piece with a foreign character is literal text."""
        if self.alphabet is not None:
            try:
                return bytes([self.alphabet[character] for character in piece])
            except KeyError:
                return piece.encode()
        if self.byte_fallback and (found := _BYTE_PIECE.fullmatch(piece)):
            return bytes([int(found[1], 16)])
        for old, new in self.replacements:
            piece = piece.replace(old, new)
        return piece.encode()


def piece_rules(decoder: Mapping[str, Any] | None) -> PieceRules:
    """Read a tokenizer.json `decoder`; raises TokenizerError naming a kind we cannot invert."""
    rules = PieceRules()
    if decoder is None:
        return rules
    steps = decoder["decoders"] if decoder.get("type") == "Sequence" else [decoder]
    for step in steps:
        rules = _with_step(rules, step)
    return rules


def _with_step(rules: PieceRules, step: Mapping[str, Any]) -> PieceRules:
    alphabet, fallback = rules.alphabet, rules.byte_fallback
    replacements, strip_left = rules.replacements, rules.strip_left
    kind = step.get("type")
    if kind == "ByteLevel":
        alphabet = byte_alphabet()
    elif kind == "ByteFallback":
        fallback = True
    elif kind == "Replace" and "String" in step["pattern"]:
        replacements += ((step["pattern"]["String"], step["content"]),)
    elif kind == "Metaspace":
        replacements += ((step["replacement"], " "),)
        strip_left = 0 if step.get("prepend_scheme") == "never" else 1
    elif kind == "Strip" and step["content"] == " " and not step["stop"]:
        strip_left = step["start"]
    elif kind != "Fuse":
        raise TokenizerError(
            f"the tokenizer's decoder step {step} is not supported; known are ByteLevel, ByteFallback, "
            f"Replace of a string, Metaspace, Strip of leading spaces and Fuse"
        )
    return PieceRules(alphabet, fallback, replacements, strip_left)
