"""What a generation delivers: chunks, and the timings that the last of them carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: stop: an end-of-sequence or stop token, or a stop text. length: max_tokens or a full context.
FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class TokenLogprob:
    """Natural log-probability of a token, and the best alternatives as (id, logprob), best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Timings:
    """Where one request's time went; seconds of wall time, counts in tokens."""

    #: From submission to the first step that worked on it.
    queue_s: float
    #: From there to its first token.
    prefill_s: float
    #: From its first token to its last.
    decode_s: float
    #: From submission to its first token; 0 if there was none.
    first_token_s: float
    #: From submission to its end.
    total_s: float
    prompt_tokens: int
    #: Prompt tokens whose KV was still there from an earlier request.
    cached_tokens: int
    completion_tokens: int
    #: Tokens drawn in `decode_s`: all but the first, which the prefill yields, and the one that ended it.
    decode_tokens: int
    #: Times its KV was dropped for others and computed again.
    preemptions: int = 0
    #: Tokens proposed from the sequence's own text, and how many of them were drawn too.
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that were run."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def prefill_tokens_per_s(self) -> float | None:
        """None where nothing was run, or too fast to measure."""
        return self.prefill_tokens / self.prefill_s if self.prefill_tokens and self.prefill_s > 0 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """None where fewer than two tokens were drawn."""
        return self.decode_tokens / self.decode_s if self.decode_tokens and self.decode_s > 0 else None


@dataclass(frozen=True)
class Chunk:
    """A piece of a generation: usually one token and the text that became certain with it.

    `text` is empty where a token ends inside a character or could still become a stop text. The last
    chunk has a `finish_reason`, `timings`, the `seed` that was used and, for "stop", what `matched`: a
    stop text or a token id. That token is not in `token_ids` and its text is never delivered.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    matched: str | int | None = None
    timings: Timings | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Completion:
    """A whole generation, joined from its chunks."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason
    matched: str | int | None
    timings: Timings
    seed: int
