"""Counts of a request, and what else every answer tells about itself."""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgeseek import __version__

if TYPE_CHECKING:
    from edgeseek.engine import Timings
    from edgeseek.llm import LLM


@dataclass
class Tally:
    """Sums up the answers of one request; a prompt with several answers counts once."""

    #: Index of an answer -> index of its prompt.
    prompt_of: list[int]
    prompts: dict[int, int] = field(default_factory=dict)
    cached: dict[int, int] = field(default_factory=dict)
    completion: int = 0
    reasoning: int = 0
    first_token_s: float | None = None

    def add(self, index: int, timings: Timings) -> None:
        """Count an answer that ended."""
        prompt = self.prompt_of[index]
        self.prompts[prompt] = timings.prompt_tokens
        self.cached[prompt] = min(self.cached.get(prompt, timings.cached_tokens), timings.cached_tokens)
        self.completion += timings.completion_tokens
        if self.first_token_s is None or timings.first_token_s < self.first_token_s:
            self.first_token_s = timings.first_token_s

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        prompt = sum(self.prompts.values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.completion,
            "total_tokens": prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": sum(self.cached.values())},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }

    def details(self) -> dict[str, Any]:
        """Figures for the request's line in the log."""
        first = {} if self.first_token_s is None else {"ttft": f"{self.first_token_s:.3f}s"}
        return {
            "prompt": sum(self.prompts.values()),
            "cached": sum(self.cached.values()),
            "completion": self.completion,
            **first,
        }


def fingerprint(llm: LLM) -> str:
    """Names what answers are a function of besides the request: version, model and type of KV."""
    told = f"{__version__}\0{llm.digest}\0{llm.plan.kv_type}"
    return "fp_" + hashlib.sha256(told.encode()).hexdigest()[:12]


def header(kind: str, prefix: str, model: str, llm: LLM) -> dict[str, Any]:
    """The fields that begin every answer and every event of a stream."""
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": fingerprint(llm),
    }
