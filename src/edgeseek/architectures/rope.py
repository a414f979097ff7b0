"""What a `Rope` means in numbers: frequencies, the factor on cosines and sines, softmax scales.

All of it in decimal arithmetic, so that every machine gets the same bits whatever its C library. Knows no
checkpoint; `rope_keys.py` reads those.
"""

from __future__ import annotations

import math
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeseek.architectures.spec import Rope

_DIGITS = 40
_POSITIVE = (
    "theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "attention_factor",
)
_PI = Decimal("3.141592653589793238462643383279502884197169")
#: Width of YaRN's ramp where its two ends meet in one pair.
_LEAST_RAMP = Decimal("0.001")


def inverse_frequencies(rope: Rope, dims: int, context: int) -> npt.NDArray[np.float32]:
    """Radians per position of each pair of `dims` rotated dimensions, as binary32 [dims / 2].

    Unscaled they are f_i = theta^(-2i / dims) (RoFormer, arXiv 2104.09864, eq. 15). `context` is the most
    positions that will be used: "dynamic" and "longrope" depend on it and are fixed by it, so that a
    position's rotation never depends on what follows it.

    * linear: f_i / factor, as if positions were divided (position interpolation, arXiv 2306.15595).
    * dynamic: a larger theta beyond the original context (NTK-aware scaling, described with its
      context-dependent form in YaRN, arXiv 2309.00071, sections 3.1 and 3.3).
    * llama3: long wavelengths are divided by factor, short ones kept, with a ramp between (Llama 3.1's
      reference code).
    * yarn: "NTK by parts" (arXiv 2309.00071, section 3.2), its ramp over pairs.
    * longrope: f_i / factors_i, or long_factors_i beyond the original context (arXiv 2402.13753).
    * factors: f_i / factors_i.
    """
    with localcontext() as exact:
        exact.prec = _DIGITS
        theta, factor = Decimal(rope.theta), Decimal(rope.factor)
        if rope.kind == "dynamic" and context > rope.original_context:
            grown = factor * context / rope.original_context - (factor - 1)
            theta *= grown ** (Decimal(dims) / (dims - 2))
        values = [theta ** (Decimal(-2 * i) / dims) for i in range(dims // 2)]
        if rope.kind == "linear":
            values = [value / factor for value in values]
        elif rope.kind == "llama3":
            values = [_llama3(rope, value) for value in values]
        elif rope.kind == "yarn":
            low, width = _yarn_ramp(rope, dims)
            for i, value in enumerate(values):
                scaled = min(max((i - low) / width, Decimal(0)), Decimal(1))
                values[i] = value * (1 - scaled) + value / factor * scaled
        elif rope.kind in ("longrope", "factors"):
            beyond = rope.kind == "longrope" and context > rope.original_context
            divisors = rope.long_factors if beyond else rope.factors
            values = [value / Decimal(divisor) for value, divisor in zip(values, divisors, strict=True)]
    with np.errstate(over="ignore"):  # the core refuses what does not fit
        return np.array([float(value) for value in values], dtype=np.float64).astype(np.float32)


def yarn_mscale(factor: float, weight: float = 1.0) -> float:
    """0.1 * weight * ln(factor) + 1, and 1 where nothing is extended (arXiv 2309.00071, eq. 22)."""
    if factor <= 1:
        return 1.0
    with localcontext() as exact:
        exact.prec = _DIGITS
        return float(Decimal("0.1") * Decimal(weight) * Decimal(factor).ln() + 1)


def longrope_attention_factor(factor: float, original_context: int) -> float:
    """sqrt(1 + ln(factor) / ln(original_context)), and 1 where nothing is extended (arXiv 2402.13753)."""
    if factor <= 1:
        return 1.0
    with localcontext() as exact:
        exact.prec = _DIGITS
        return float((1 + Decimal(factor).ln() / Decimal(original_context).ln()).sqrt())


def softmax_scale(rope: Rope, head_dim: int) -> float:
    """What latent attention multiplies scores with: head_dim^-0.5 times YaRN's correction squared.

    `head_dim` counts all dimensions of a query head, rotated or not. Source: DeepSeek-V2's reference model.
    """
    correction = yarn_mscale(rope.factor, rope.mscale_all_dim) if rope.mscale_all_dim else 1.0
    return correction * correction / math.sqrt(head_dim)


def problem(rope: Rope, dims: int) -> str | None:
    """What is wrong with a `Rope` for `dims` rotated dimensions that came from a file, None if nothing."""
    for name in _POSITIVE:
        if not _positive(getattr(rope, name)):
            return f"{name} is {getattr(rope, name)!r}, not a positive number"
    if rope.mscale_all_dim != 0 and not _positive(rope.mscale_all_dim):
        return f"mscale_all_dim is {rope.mscale_all_dim!r}, not a positive number or 0"
    truncate: Any = rope.truncate
    if not isinstance(truncate, bool):
        return f"truncate is {truncate!r}, not true or false"
    least = 2 if rope.kind in ("dynamic", "llama3", "yarn", "longrope") else 0
    if type(rope.original_context) is not int or not least <= rope.original_context < 1 << 48:
        return f"original_context is {rope.original_context!r}, not a whole number of at least {least}"
    if rope.kind == "dynamic" and (dims < 4 or rope.factor < 1):
        return f"dynamic scaling by {rope.factor!r} of {dims} dimensions is undefined"
    if rope.kind == "llama3" and rope.low_freq_factor >= rope.high_freq_factor:
        return (
            f"low_freq_factor {rope.low_freq_factor!r} is not below {rope.high_freq_factor!r}, the high one"
        )
    if rope.kind == "yarn" and rope.theta <= 1:
        return f"theta is {rope.theta!r}, and yarn needs one over 1"
    wanted = {"factors": dims // 2 * (rope.kind in ("longrope", "factors"))}
    wanted["long_factors"] = dims // 2 * (rope.kind == "longrope")
    for name, count in wanted.items():
        listed = getattr(rope, name)
        if len(listed) != count:
            return f"{name} has {len(listed)} entries, and {count} belong there"
        if not all(_positive(value) for value in listed):
            return f"{name} holds something else than positive numbers"
    return None


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _llama3(rope: Rope, frequency: Decimal) -> Decimal:
    low, high = Decimal(rope.low_freq_factor), Decimal(rope.high_freq_factor)
    turns = rope.original_context * frequency / (2 * _PI)
    kept = min(max((turns - low) / (high - low), Decimal(0)), Decimal(1))
    return (1 - kept) * frequency / Decimal(rope.factor) + kept * frequency


def _yarn_ramp(rope: Rope, dims: int) -> tuple[Decimal, Decimal]:
    """First pair of YaRN's ramp and its width, in pairs."""

    def pair(turns: float) -> Decimal:
        ratio = rope.original_context / (Decimal(turns) * 2 * _PI)
        return dims * ratio.ln() / (2 * Decimal(rope.theta).ln())

    low, high = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        low = low.to_integral_value(ROUND_FLOOR)
        high = high.to_integral_value(ROUND_CEILING)
    low, high = max(low, Decimal(0)), min(high, Decimal(dims - 1))
    return low, max(high - low, _LEAST_RAMP)
