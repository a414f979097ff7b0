from __future__ import annotations

import math

import numpy as np
import pytest

from edgeseek.architectures import Rope
from edgeseek.architectures.rope import (
    inverse_frequencies,
    longrope_attention_factor,
    softmax_scale,
    yarn_mscale,
)

LLAMA_3_2 = Rope(5e5, "llama3", 32.0, original_context=8192, low_freq_factor=1.0, high_freq_factor=4.0)
V2_LITE = Rope(1e4, "yarn", 40.0, original_context=4096, mscale_all_dim=0.707)


def plain(theta: float, dims: int) -> list[float]:
    return [theta ** (-2 * i / dims) for i in range(dims // 2)]


def test_llama_3_2_1b_has_its_published_frequencies():
    frequencies = inverse_frequencies(LLAMA_3_2, 64, 131072)
    published = {
        14: 0.00321145,
        15: 0.00129055,
        16: 4.29557e-4,
        17: 9.70829e-5,
        18: 1.94616e-5,
        31: 9.41831e-8,
    }
    assert {i: float(f"{frequencies[i]:.6g}") for i in published} == published
    # Short wavelengths stay as they are.
    np.testing.assert_array_equal(frequencies[:14], inverse_frequencies(Rope(5e5), 64, 131072)[:14])


def test_deepseek_v2_lite_has_its_published_softmax_scale():
    assert softmax_scale(V2_LITE, 192) == pytest.approx(0.1147214, abs=5e-8)
    assert softmax_scale(Rope(1e4), 192) == pytest.approx(192**-0.5, rel=1e-15)
    # mscale and mscale_all_dim are equal: cosines and sines keep their size.
    assert V2_LITE.attention_factor == 1.0


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_ramps_between():
    frequencies = inverse_frequencies(V2_LITE, 64, 163840)
    base = plain(1e4, 64)
    # The ramp of 4096 positions, theta 10000 and 64 dimensions runs from pair 10 to pair 23.
    assert frequencies[:11] == pytest.approx(base[:11], rel=1e-7)
    assert frequencies[23:] == pytest.approx([f / 40 for f in base[23:]], rel=1e-7)
    halfway = 8 / 13
    assert frequencies[18] == pytest.approx(base[18] * (1 - halfway + halfway / 40), rel=1e-7)


def test_yarn_without_truncation_ramps_between_fractions_of_pairs():
    kept = Rope(1e4, "yarn", 40.0, original_context=4096)
    exact = Rope(1e4, "yarn", 40.0, original_context=4096, truncate=False)

    def pair(turns: float) -> float:
        return 64 * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(1e4))

    ramp = (18 - pair(32)) / (pair(1) - pair(32))
    found = inverse_frequencies(exact, 64, 4096)[18]
    assert found == pytest.approx(1e4 ** (-36 / 64) * (1 - ramp + ramp / 40), rel=1e-6)
    assert found != inverse_frequencies(kept, 64, 4096)[18]


def test_linear_divides_every_frequency():
    # DeepSeek-Coder: theta 1e5, positions divided by 4.
    found = inverse_frequencies(Rope(1e5, "linear", 4.0), 128, 16384)
    assert found == pytest.approx([f / 4 for f in plain(1e5, 128)], rel=1e-7)


@pytest.mark.parametrize("context", [1, 2048, 4096])
def test_dynamic_changes_nothing_within_the_original_context(context):
    rope = Rope(1e4, "dynamic", 2.0, original_context=4096)
    np.testing.assert_array_equal(
        inverse_frequencies(rope, 64, context), inverse_frequencies(Rope(1e4), 64, context)
    )


def test_dynamic_grows_theta_with_the_planned_context():
    rope = Rope(1e4, "dynamic", 2.0, original_context=4096)
    theta = 1e4 * (2 * 8192 / 4096 - 1) ** (64 / 62)
    assert inverse_frequencies(rope, 64, 8192) == pytest.approx(plain(theta, 64), rel=1e-6)


def test_longrope_takes_the_factors_of_the_planned_context():
    short, long = (1.0, 1.5, 2.0, 4.0), (1.0, 3.0, 9.0, 27.0)
    rope = Rope(1e4, "longrope", 8.0, original_context=4096, factors=short, long_factors=long)
    base = plain(1e4, 8)
    for context, factors in ((4096, short), (4097, long)):
        wanted = [f / factor for f, factor in zip(base, factors, strict=True)]
        assert inverse_frequencies(rope, 8, context) == pytest.approx(wanted, rel=1e-7)


def test_factors_of_a_gguf_equal_the_scaling_they_were_made_from():
    scaled = inverse_frequencies(LLAMA_3_2, 64, 8192)
    kept = inverse_frequencies(Rope(5e5), 64, 8192)
    stored = tuple(float(f) for f in (kept / scaled).astype(np.float32))
    assert min(stored) == 1.0
    assert max(stored) == pytest.approx(32.0)
    found = inverse_frequencies(Rope(5e5, "factors", factors=stored), 64, 8192)
    assert found == pytest.approx(scaled, rel=3e-7)


def test_factors_on_cosines_grow_with_the_logarithm_of_the_extension():
    assert yarn_mscale(1.0) == 1.0
    assert yarn_mscale(0.5) == 1.0
    assert yarn_mscale(4.0) == pytest.approx(0.1 * math.log(4) + 1, rel=1e-15)
    assert longrope_attention_factor(1.0, 4096) == 1.0
    # Phi-3-mini-128k: 131072 positions from 4096.
    assert longrope_attention_factor(32.0, 4096) == pytest.approx(1.1902380714, abs=1e-9)
