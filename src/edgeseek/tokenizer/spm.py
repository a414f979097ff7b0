"""SentencePiece BPE vocabularies (GGUF kind "llama") as tokenizer.json parts.

SentencePiece keeps no merges: it joins the neighbours whose union has the best score (Kudo and
Richardson, 2018; `bpe_model.cc`). A rank-ordered merge list gives the same result when every split
of a piece into two pieces is a merge, ranked by the piece's score.
"""

from __future__ import annotations

from typing import Any

from edgeseek.tokenizer.gguf_vocabulary import BYTE, CONTROL, UNKNOWN, USER_DEFINED, GgufVocabulary

_SPACE = "\u2581"
#: Types that text never merges into: they are matched whole or stand for single bytes.
_UNMERGEABLE = frozenset((UNKNOWN, CONTROL, USER_DEFINED, BYTE))


def merges(vocabulary: GgufVocabulary) -> list[str]:
    """All merges "left right", best score first.

    Of several splits of one piece the one with the longest left part comes first: in a run of one
    character the leftmost neighbours join first, so the odd rest is on the right. Equal scores of
    different pieces, which SentencePiece settles by position in the text, go by id.
    """
    scores = {
        token: (-score, token_id)
        for token_id, (token, score, kind) in enumerate(
            zip(vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True)
        )
        if kind not in _UNMERGEABLE
    }
    ranked = sorted((rank, token) for token, rank in scores.items() if len(token) > 1)
    return [
        f"{token[:cut]} {token[cut:]}"
        for _, token in ranked
        for cut in range(len(token) - 1, 0, -1)
        if token[:cut] in scores and token[cut:] in scores
    ]


def normalizer(*, add_space_prefix: bool) -> dict[str, Any]:
    """Spaces become "▁", and a text (also after a special token) starts with one if asked for."""
    steps: list[dict[str, Any]] = []
    if add_space_prefix:
        steps.append({"type": "Prepend", "prepend": _SPACE})
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    return {"type": "Sequence", "normalizers": steps}


def decoder(*, add_space_prefix: bool) -> dict[str, Any]:
    """ "▁" and `<0xNN>` back to text, less the space that the normalizer put in front."""
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if add_space_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}
