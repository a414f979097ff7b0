"""What a caller may ask of one generation: `SamplingParams`, typed, frozen and validated.

Knows nothing of tokens' text, logits or scheduling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from edgeseek.errors import UsageError

#: generation_config.json keys that carry over to a field of the same name.
_SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p")


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn and when generation ends. Without arguments: greedy, until the context is full.

    The order of the chain is penalties, bias, temperature, top-k, top-p, min-p; log-probabilities are of
    the distribution before any of it. Bad values raise UsageError naming the field and its range.
    """

    #: 0 always takes the most likely token; up to 1000.
    temperature: float = 0.0
    #: Keep the k most likely tokens; 0 keeps all.
    top_k: int = 0
    #: Keep the fewest most likely tokens whose probabilities sum to at least this, (0, 1].
    top_p: float = 1.0
    #: Keep tokens at least this fraction as likely as the most likely one, [0, 1].
    min_p: float = 0.0
    #: Divides positive and multiplies negative logits of tokens seen in prompt or output; 1 is off.
    repetition_penalty: float = 1.0
    #: Subtracted once from the logits of tokens in the output.
    presence_penalty: float = 0.0
    #: Subtracted from a token's logit for each time it occurs in the output.
    frequency_penalty: float = 0.0
    #: Added to the logits of these token ids; -infinity bans one.
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    #: 0 to 2**64 - 1; None draws a random one, which the last chunk reports.
    seed: int | None = None
    #: Most tokens to generate; None goes on until the context is full.
    max_tokens: int | None = None
    #: Texts that end the generation and are left out of it, also where they span tokens.
    stop: Sequence[str] = ()
    #: Token ids that end the generation like the model's own end-of-sequence ids.
    stop_token_ids: Sequence[int] = ()
    #: Go on past the model's end-of-sequence ids (their text is left out all the same).
    ignore_eos: bool = False
    #: None reports no log-probabilities, 0 those of the chosen tokens, n also the n best alternatives.
    logprobs: int | None = None

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else _items("stop", self.stop)
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", _items("stop_token_ids", self.stop_token_ids))
        if not isinstance(self.logit_bias, Mapping):
            raise UsageError(f"logit_bias is {self.logit_bias!r}; give a mapping of token ids to numbers")
        object.__setattr__(self, "logit_bias", MappingProxyType(dict(self.logit_bias)))
        _number("temperature", self.temperature, 0.0, 1000.0)
        _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("repetition_penalty", self.repetition_penalty, 0.001, 1000.0)
        _number("presence_penalty", self.presence_penalty, -1000.0, 1000.0)
        _number("frequency_penalty", self.frequency_penalty, -1000.0, 1000.0)
        _integer("top_k", self.top_k, 0, 2**31 - 1)
        if self.seed is not None:
            _integer("seed", self.seed, 0, 2**64 - 1)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1, 2**31 - 1)
        if self.logprobs is not None:
            _integer("logprobs", self.logprobs, 0, 2**31 - 1)
        for token in self.stop_token_ids:
            _integer("stop_token_ids", token, 0, 2**31 - 1)
        for token, bias in self.logit_bias.items():
            _integer("logit_bias", token, 0, 2**31 - 1)
            if bias != -math.inf:
                _number(f"logit_bias[{token}]", bias, -1e6, 1e6)
        if not all(map(_is_text, stop)):
            raise UsageError(f"stop is {list(stop)!r}; give non-empty strings")

    def with_changes(self, **changes: Any) -> SamplingParams:
        """A copy with some fields replaced; an unknown field raises TypeError."""
        return replace(self, **changes)

    @classmethod
    def from_generation_config(cls, config: Mapping[str, Any]) -> SamplingParams:
        """The defaults a model's generation_config.json asks for.

        `do_sample: false` means greedy, as does an absent `temperature` unless `do_sample` is true (then
        1.0). Keys this engine does not know are of no effect; null counts as absent, and so does a `top_k`
        of -1, as some write "all". Raises UsageError for any other value out of range.
        """
        given = {key: config[key] for key in _SAMPLING_KEYS if config.get(key) is not None}
        if given.get("top_k") == -1:
            del given["top_k"]
        do_sample = config.get("do_sample")
        if do_sample is False or (do_sample is None and "temperature" not in given):
            given = {}
        elif "temperature" not in given:
            given["temperature"] = 1.0
        penalty = config.get("repetition_penalty")
        return cls(**given, repetition_penalty=1.0 if penalty is None else penalty)


def _items(name: str, value: object) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"{name} is {value!r}; give a list")
    return tuple(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _number(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    ok = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    if not ok or (open_low and value == low):
        bounds = f"above {low:g} and at most {high:g}" if open_low else f"from {low:g} to {high:g}"
        raise UsageError(f"{name} is {value!r}; give a number {bounds}")


def _integer(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError(f"{name} is {value!r}; give a whole number from {low} to {high}")
