"""A tokenizer.json as a GGUF's `tokenizer.*` metadata.

A GGUF names its pre-tokenizer where a tokenizer.json spells it out, so the name is found by what it does:
the one whose splits of a set of probe texts are the tokenizer's own. What was written is turned back into
a tokenizer and has to encode the probes alike, or the export is refused: a model with a wrong tokenizer
answers, only worse. Owns token types and scores; the keys are those of `tokenizer/gguf_vocabulary.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer as Library

from edgeseek.errors import TokenizerError
from edgeseek.tokenizer.from_gguf import tokenizer_json_from_gguf
from edgeseek.tokenizer.gguf_vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from edgeseek.tokenizer.pre_tokenizers import KNOWN
from edgeseek.tokenizer.special_tokens import SpecialTokens
from edgeseek.tokenizer.tokenizer_json import bpe_model, document, dump

_PREFIX = "tokenizer.ggml."
#: Names that llama.cpp and we know alike; of those that split alike the first is taken.
_NAMES = ("gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "deepseek-coder", "deepseek-v3")
_PROBES = (
    "Hello world, it's 2024 and we'LL pay $1234567.89 for 12 345 items!",
    "def f(x):\n    return x**2  # done\r\n\r\n\tif x:\n\t\tpass   \n  ",
    "Grüße aus Köln, façade, naïve, İstanbul; привет мир, γειά σου κόσμε.",
    "你好，世界。今天2024年12月31日！ こんにちは世界 カタカナ 한국어 문장입니다.",
    "a_b-c/d\\e (f) [g] {h} <i> \"j\" 'k' `l` ~m @n #o %p ^q &r *s +t =u |v",
    "😀 👩‍👩‍👧 → ≤ ∑ ½ ² ① \u00a0nbsp \u3000wide\u200b \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 नमस्ते مرحبا",
    " leading and trailing  \n\n\nthree\n 1 22 333 4444 55555",
)


def vocabulary_metadata(
    tokenizer_json: bytes, special: SpecialTokens, rows: int, chat_template: str | None
) -> dict[str, Any]:
    """The metadata of a tokenizer whose embedding has `rows` rows.

    Raises TokenizerError for a tokenizer that GGUF cannot hold: another model than BPE, an unknown
    pre-tokenizer, more tokens than rows, or one that would encode otherwise there.
    """
    content = json.loads(tokenizer_json)
    model = content["model"]
    if model.get("type", "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise TokenizerError(
            f"a tokenizer of kind {model.get('type')!r} cannot be written as GGUF; only BPE can"
        )
    library = Library.from_str(tokenizer_json.decode())
    sentencepiece = bool(model.get("byte_fallback"))
    tokens, types = _tokens(content, rows, sentencepiece)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    metadata: dict[str, Any] = {_PREFIX + "model": "llama" if sentencepiece else "gpt2"}
    if sentencepiece:
        metadata[_PREFIX + "pre"] = "default"
    else:
        metadata[_PREFIX + "pre"] = _pre_tokenizer_name(content, library)
    metadata[_PREFIX + "tokens"] = tokens
    metadata[_PREFIX + "token_type"] = types
    if sentencepiece:
        metadata[_PREFIX + "scores"] = _scores(tokens, merges)
        unknown = model.get("unk_token")
        if unknown in model["vocab"]:
            metadata[_PREFIX + "unknown_token_id"] = model["vocab"][unknown]
    else:
        metadata[_PREFIX + "merges"] = merges
    metadata.update(_special(special, library))
    if sentencepiece:
        metadata[_PREFIX + "add_space_prefix"] = _adds_space(library)
    if chat_template is not None:
        metadata["tokenizer.chat_template"] = chat_template
    _check(library, metadata)
    return metadata


def _tokens(content: Mapping[str, Any], rows: int, sentencepiece: bool) -> tuple[list[str], list[int]]:
    """Texts and types by id; rows without a token are padding."""
    added = {token["id"]: token for token in content.get("added_tokens") or ()}
    texts = {token_id: text for text, token_id in content["model"]["vocab"].items()}
    texts.update({token_id: token["content"] for token_id, token in added.items()})
    if texts and max(texts) >= rows:
        raise TokenizerError(
            f"the tokenizer has a token of id {max(texts)} and the model {rows} rows of embeddings; "
            f"they do not belong together"
        )
    unknown = content["model"].get("unk_token")
    tokens, types = [], []
    for token_id in range(rows):
        text = texts.get(token_id)
        if text is None:
            tokens.append(f"[PAD{token_id}]")
            types.append(UNUSED)
            continue
        tokens.append(text)
        if sentencepiece and text == unknown:
            types.append(UNKNOWN)
        elif token_id in added:
            types.append(CONTROL if added[token_id].get("special") else USER_DEFINED)
        elif sentencepiece and re.fullmatch(r"<0x[0-9A-F]{2}>", text):
            types.append(BYTE)
        else:
            types.append(NORMAL)
    return tokens, types


def _scores(tokens: Sequence[str], merges: Sequence[str]) -> list[float]:
    """SentencePiece joins the best score first: a piece's is the rank of the first merge that makes it."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge.replace(" ", "", 1), rank)
    last = len(merges)
    return [float(-ranks.get(token, last + token_id)) for token_id, token in enumerate(tokens)]


def _pre_tokenizer_name(content: Mapping[str, Any], library: Library) -> str:
    wanted = _splits(library)
    for name in _NAMES:
        candidate = KNOWN[name].pre_tokenizer
        empty = document(
            added_tokens=[],
            normalizer=None,
            pre_tokenizer=candidate,
            post_processor=None,
            decoder={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            model=bpe_model({}, []),
        )
        if _splits(Library.from_str(dump(empty).decode())) == wanted:
            return name
    kind = (content.get("pre_tokenizer") or {}).get("type")
    raise TokenizerError(
        f"the tokenizer splits text (pre-tokenizer {kind}) in none of the ways that GGUF names and we know: "
        f"{', '.join(_NAMES)}; it cannot be written as GGUF"
    )


def _splits(library: Library) -> list[list[str]] | None:
    splitter = library.pre_tokenizer
    if splitter is None:
        return None
    return [[piece for piece, _ in splitter.pre_tokenize_str(probe)] for probe in _PROBES]


def _special(special: SpecialTokens, library: Library) -> dict[str, Any]:
    """Which tokens begin and end a text, and whether the tokenizer adds them by itself."""
    plain = library.encode("a", add_special_tokens=False).ids
    whole = library.encode("a").ids
    start = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), 0)
    before, after = whole[:start], whole[start + len(plain) :]
    begin = before[0] if before else special.bos_token_id
    ends = tuple(dict.fromkeys([*after[-1:], *special.eos_token_ids]))
    found: dict[str, Any] = {} if begin is None else {_PREFIX + "bos_token_id": begin}
    for name, token_id in zip(("eos", "eot", "eom"), ends, strict=False):
        found[f"{_PREFIX}{name}_token_id"] = token_id
    found[_PREFIX + "add_bos_token"] = bool(before)
    found[_PREFIX + "add_eos_token"] = bool(after)
    return found


def _adds_space(library: Library) -> bool:
    tokens: list[str] = library.encode("a", add_special_tokens=False).tokens
    return bool(tokens) and tokens[0].startswith("\u2581")


def _check(library: Library, metadata: Mapping[str, Any]) -> None:
    """Raise TokenizerError unless the metadata gives the same ids for every probe."""
    written = Library.from_str(tokenizer_json_from_gguf(metadata).decode())
    for probe in _PROBES:
        if written.encode(probe).ids != library.encode(probe).ids:
            raise TokenizerError(
                f"written as GGUF, the tokenizer would encode {probe[:40]!r}… otherwise; its vocabulary is "
                f"of a kind that GGUF cannot hold"
            )
