"""The pre-tokenizers that GGUF files name, as tokenizer.json components.

One table: name -> normalizer, pre-tokenizer and whether a whole word in the vocabulary skips the
merges. Each is the published splitting of the model family that the name stands for (its own
tokenizer.json); llama.cpp's regexes of the same names split alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from edgeseek.errors import TokenizerError

Component = dict[str, Any]

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS_AND_SPACE = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS_AND_SPACE}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SYMBOLS_AND_SPACE}"

_HAN_TO_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
#: Letters that have case (general categories Lu, Ll, Lt), as deepseek-llm's tokenizer lists them.
_CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    "Ḁ-ἕἘ-Ἕ\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc"
    "\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_PUNCTUATION = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"


@dataclass(frozen=True)
class PreTokenizer:
    """What a name adds to a byte-level BPE; components are tokenizer.json values."""

    pre_tokenizer: Component
    normalizer: Component | None = None
    ignore_merges: bool = False
    #: Whether prompts begin with BOS where the file does not say.
    adds_bos: bool = False


def byte_level(*, use_regex: bool) -> Component:
    """Bytes to the GPT-2 alphabet, after GPT-2's own split if `use_regex`."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _splits(*patterns: str) -> Component:
    """Split by each pattern in turn, matches and the rest alike, then map to bytes."""
    steps = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in patterns
    ]
    return {"type": "Sequence", "pretokenizers": [*steps, byte_level(use_regex=False)]}


_GPT2 = PreTokenizer(byte_level(use_regex=True))
_LLAMA_BPE = PreTokenizer(_splits(_LLAMA3), ignore_merges=True, adds_bos=True)
_QWEN = PreTokenizer(_splits(_QWEN2), normalizer={"type": "NFC"})

KNOWN: Mapping[str, PreTokenizer] = MappingProxyType(
    {
        "default": _GPT2,
        "gpt-2": _GPT2,
        "llama-bpe": _LLAMA_BPE,
        "llama3": _LLAMA_BPE,
        "llama-v3": _LLAMA_BPE,
        "qwen2": _QWEN,
        "deepseek-r1-qwen": _QWEN,
        "smollm": PreTokenizer(
            {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Digits", "individual_digits": True},
                    byte_level(use_regex=True),
                ],
            }
        ),
        "deepseek-llm": PreTokenizer(
            _splits(r"[\r\n]", rf"\s?[{_CASED}]+", _DEEPSEEK_PUNCTUATION, r"\s+$", _HAN_TO_HANGUL, r"\p{N}+")
        ),
        "deepseek-coder": PreTokenizer(
            _splits(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_TO_HANGUL, r"\p{N}")
        ),
        "deepseek-v3": PreTokenizer(_splits(r"\p{N}{1,3}", _HAN_AND_KANA, _DEEPSEEK_V3)),
    }
)


def pre_tokenizer(name: str) -> PreTokenizer:
    """The entry of `name`; raises TokenizerError naming it and the known ones."""
    try:
        return KNOWN[name]
    except KeyError:
        raise TokenizerError(
            f"the GGUF names the pre-tokenizer {name!r}, which edgeseek does not know; known are "
            f"{', '.join(sorted(KNOWN))}. Use the model's Hugging Face folder, which has its tokenizer.json"
        ) from None
