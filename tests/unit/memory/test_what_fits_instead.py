"""Where a model does not fit, the changes that are offered do, and are the nearest ones."""

from __future__ import annotations

from typing import Any

import pytest

from edgeseek.architectures import LatentAttention, ModelConfig
from edgeseek.errors import DoesNotFitError
from edgeseek.memory.alternatives import Alternative, Wish, alternatives
from edgeseek.memory.footprint import Footprint, Weights
from edgeseek.memory.limits import MemoryLimit, MemoryLimits
from edgeseek.memory.sizes import kv_bytes_per_token

GIB = 1 << 30
MB = 1_000_000
CONFIG = ModelConfig("qwen2", 151936, 1536, 8960, 28, 12, 2, 128, 131072, 1e-6)
BY_SCHEME = {
    "f32": Weights(6000 * MB, 0),
    "f16": Weights(3000 * MB, 0),
    "q8": Weights(1600 * MB, 0),
    "q4": Weights(1000 * MB, 0),
}
LIMITS = MemoryLimits((MemoryLimit("MemAvailable", 64 * GIB, 60 * GIB),))


def wish(**changes: Any) -> Wish:
    config = changes.pop("config", CONFIG)
    footprint = Footprint("model", config, BY_SCHEME["q8"], "q8", BY_SCHEME)  # type: ignore[arg-type]
    return Wish(footprint, LIMITS, threads=4, **changes)


def options(found: list[Alternative]) -> list[str]:
    return [one.options for one in found]


def test_each_kind_of_change_is_offered_where_it_is_enough() -> None:
    asked = wish(context=8192, slots=4)
    needed = asked.unbounded().needed
    # One eighth of the keys and values is missing.
    short = wish(context=8192, slots=4, budget=needed - 4 * 8192 * 28672 // 8)
    with pytest.raises(DoesNotFitError):
        short.plan()
    assert options(alternatives(short)) == ["--context 7168", "--slots 2", "--kv int8", "--scheme q4"]


def test_every_alternative_fits_the_budget() -> None:
    asked = wish(context=8192, slots=4, budget=2000 * MB)
    found = alternatives(asked)
    assert found
    for one in found:
        assert one.plan.needed <= 2000 * MB


def test_a_change_that_is_not_enough_comes_with_the_context_that_it_allows() -> None:
    asked = wish(context=32768, slots=2, budget=2000 * MB)
    by_option = {one.options.split(" --context")[0]: one.plan for one in alternatives(asked)}
    assert {"--slots 1", "--kv int8", "--scheme q4"} < set(by_option)
    alone = by_option["--slots 1"]
    assert alone.context < 32768
    assert 2000 * MB - alone.needed < 32 * 28672
    # Half the bytes a token, and scales.
    more = by_option["--kv int8"].context / next(iter(alternatives(asked))).plan.context
    assert more == pytest.approx(28672 / kv_bytes_per_token(CONFIG, "int8"), rel=0.02)


def test_changes_are_combined_where_no_single_one_is_enough() -> None:
    # Beside q4 weights, buffers and the runtime, 10 MB are left.
    least = wish(scheme="q4", context=32).unbounded()
    tight = wish(context=4096, slots=8, budget=least.needed - least.kv + 10 * MB)
    found = options(alternatives(tight))
    assert found
    assert all("--scheme q4" in words for words in found)


def test_nothing_is_offered_where_nothing_fits() -> None:
    assert alternatives(wish(budget=500 * MB)) == []


def test_a_latent_cache_is_never_offered_as_int8() -> None:
    latent = LatentAttention(rank=512, plain_dim=128, rotated_dim=64, value_dim=128)
    config = ModelConfig("deepseek_v2", 102400, 2048, 10944, 27, 16, 16, 192, 163840, 1e-6, latent=latent)
    asked = wish(config=config, context=32768, slots=4, budget=2500 * MB)
    found = options(alternatives(asked))
    assert found
    assert not any("int8" in words for words in found)


def test_what_would_be_needed_carries_the_limits_that_there_are() -> None:
    needs = wish(context=8192, budget=GIB).unbounded()
    assert (needs.available, needs.reserve, needs.decided_by) == (GIB, 0, "the budget")
    assert needs.context == 8192
