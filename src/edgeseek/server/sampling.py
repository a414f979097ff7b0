"""From a request's fields to SamplingParams."""

from __future__ import annotations

from typing import Any

from edgeseek.engine import SamplingParams
from edgeseek.server.schemas.common import SamplingFields

_SAME_NAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "stop_token_ids",
    "ignore_eos",
)


def sampling_params(body: SamplingFields, base: SamplingParams, **more: Any) -> list[SamplingParams]:
    """One for each of the `n` answers; with a seed, answer i draws with seed + i.

    `more` are further changes to `base`, the model's own defaults. Raises UsageError.
    """
    changes = {name: getattr(body, name) for name in _SAME_NAME if getattr(body, name) is not None}
    if body.stop is not None:
        changes["stop"] = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    if body.logit_bias:
        changes["logit_bias"] = {int(token): bias for token, bias in body.logit_bias.items()}
    params = base.with_changes(**changes, **more)
    if body.seed is None:
        return [params] * (body.n or 1)
    return [params.with_changes(seed=(body.seed + i) % (1 << 64)) for i in range(body.n or 1)]
