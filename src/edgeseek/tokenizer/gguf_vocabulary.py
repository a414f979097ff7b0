"""The `tokenizer.*` metadata of a GGUF, checked and typed.

Owns the key names (ggml docs, gguf.md, "Tokenizer") and their defaults. Knows nothing of
tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeseek.errors import TokenizerError

_PREFIX = "tokenizer.ggml."

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class GgufVocabulary:
    """A GGUF's vocabulary; lists are indexed by token id, absent values are None or empty."""

    kind: str
    pre: str
    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str]
    bos_id: int | None
    eos_id: int | None
    #: Further ends of a generation: end of turn, end of message.
    other_end_ids: tuple[int, ...]
    unknown_id: int | None
    add_bos: bool | None
    add_eos: bool
    add_space_prefix: bool

    def ids_of_type(self, *kinds: int) -> list[int]:
        """Ids whose token type is one of `kinds`, ascending."""
        return [token_id for token_id, kind in enumerate(self.types) if kind in kinds]


def read_vocabulary(metadata: Mapping[str, Any]) -> GgufVocabulary:
    """Read and check the metadata; raises TokenizerError naming the key that is wrong."""
    kind = metadata.get(_PREFIX + "model")
    if not isinstance(kind, str):
        raise TokenizerError(
            f"the GGUF has no {_PREFIX}model, so it holds no vocabulary; use a complete GGUF or the "
            f"model's Hugging Face folder"
        )
    tokens = [_text(token) for token in _list(metadata, "tokens")]
    if not tokens:
        raise TokenizerError(f"the GGUF has an empty {_PREFIX}tokens; it may be truncated")
    count = len(tokens)
    ids = {
        name: _token_id(metadata, f"{name}_token_id", count)
        for name in ("bos", "eos", "eot", "eom", "unknown")
    }
    types = [int(kind) for kind in _numbers(metadata, "token_type")]
    scores = _numbers(metadata, "scores")
    for name, values in (("token_type", types), ("scores", scores)):
        if values and len(values) != count:
            raise TokenizerError(
                f"the GGUF has {count} tokens but {len(values)} entries in {_PREFIX}{name}; "
                f"the file is damaged"
            )
    if not types:
        types = [NORMAL] * count
        for token_id in (ids["bos"], ids["eos"]):
            if token_id is not None:
                types[token_id] = CONTROL
    add_bos = metadata.get(_PREFIX + "add_bos_token")
    return GgufVocabulary(
        kind=kind,
        pre=_text(metadata.get(_PREFIX + "pre") or "default"),
        tokens=tokens,
        types=types,
        scores=scores,
        merges=[_text(merge) for merge in _list(metadata, "merges")],
        bos_id=ids["bos"],
        eos_id=ids["eos"],
        other_end_ids=tuple(end for end in (ids["eot"], ids["eom"]) if end is not None),
        unknown_id=ids["unknown"],
        add_bos=None if add_bos is None else bool(add_bos),
        add_eos=bool(metadata.get(_PREFIX + "add_eos_token", False)),
        add_space_prefix=bool(metadata.get(_PREFIX + "add_space_prefix", True)),
    )


def _list(metadata: Mapping[str, Any], name: str) -> list[Any]:
    values = metadata.get(_PREFIX + name)
    if values is None:
        return []
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TokenizerError(f"the GGUF's {_PREFIX}{name} is not an array; the file is damaged")
    return list(values)


def _numbers(metadata: Mapping[str, Any], name: str) -> list[float]:
    try:
        return [float(value) for value in _list(metadata, name)]
    except (TypeError, ValueError, OverflowError) as error:
        raise TokenizerError(
            f"the GGUF's {_PREFIX}{name} holds something other than numbers ({error}); the file is damaged"
        ) from error


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _token_id(metadata: Mapping[str, Any], name: str, count: int) -> int | None:
    value = metadata.get(_PREFIX + name)
    if value is None:
        return None
    try:
        token_id = int(value)
    except (TypeError, ValueError, OverflowError):
        token_id = -1
    if not 0 <= token_id < count:
        raise TokenizerError(
            f"the GGUF's {_PREFIX}{name} is {value!r}, but it has {count} tokens; the file is damaged"
        )
    return token_id
