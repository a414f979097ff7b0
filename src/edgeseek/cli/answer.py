"""Shows a stream of chunks as it arrives and sums it up: the answer, the JSON object, the timings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgeseek.cli.text import size

if TYPE_CHECKING:
    from edgeseek.llm import Chunk, Timings


@dataclass
class Answer:
    """What a stream of chunks added up to."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    timings: Timings | None = None

    def take(self, chunk: Chunk) -> None:
        """Add one chunk."""
        self.text += chunk.text
        self.token_ids.extend(chunk.token_ids)
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.timings = chunk.timings or self.timings


def show(chunks: Iterable[Chunk], write: Callable[[str], None], answer: Answer) -> None:
    """Write each chunk's text as it comes and add it to `answer`, which keeps it if this is cut off."""
    for chunk in chunks:
        answer.take(chunk)
        if chunk.text:
            write(chunk.text)


def as_json(answer: Answer, load_s: float, peak_rss: int | None) -> dict[str, Any]:
    """The object that `run --json` prints; rates are tokens per second, null where nothing was measured."""
    timings = answer.timings
    return {
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "usage": {
            "prompt_tokens": timings.prompt_tokens if timings else 0,
            "completion_tokens": len(answer.token_ids),
        },
        "timings": {
            "load_s": round(load_s, 4),
            "prefill_tokens_per_s": _rounded(timings.prefill_tokens_per_s if timings else None),
            "decode_tokens_per_s": _rounded(timings.decode_tokens_per_s if timings else None),
            "drafted_tokens": timings.drafted_tokens if timings else 0,
            "accepted_tokens": timings.accepted_tokens if timings else 0,
            "peak_rss_bytes": peak_rss,
        },
    }


def timing_line(answer: Answer, load_s: float | None, peak_rss: int | None) -> str:
    """The line under an answer: how many tokens at which rate, the load time, the memory."""
    parts = []
    timings = answer.timings
    if timings is not None:
        cached = f" ({timings.cached_tokens} cached)" if timings.cached_tokens else ""
        parts.append(_part("prompt", timings.prompt_tokens, timings.prefill_tokens_per_s, cached))
        guessed = f" ({timings.accepted_tokens} guessed)" if timings.accepted_tokens else ""
        parts.append(_part("answer", len(answer.token_ids), timings.decode_tokens_per_s, guessed))
    if load_s is not None:
        parts.append(f"loaded in {load_s:.2f} s")
    if peak_rss is not None:
        parts.append(f"peak memory {size(peak_rss)}")
    return "[" + " · ".join(parts) + "]"


def _part(what: str, tokens: int, rate: float | None, detail: str = "") -> str:
    count = f"{what} {tokens} {'token' if tokens == 1 else 'tokens'}{detail}"
    return count if rate is None else f"{count}, {rate:.1f}/s"


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 2)
