"""The plan's arithmetic, the default context, and refusals that carry the numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeseek.architectures.spec import ModelConfig, MoE
from edgeseek.engine.engine import SLOTS, STEP_TOKENS
from edgeseek.engine.speculative import MAX_ROWS
from edgeseek.errors import DoesNotFitError, UsageError
from edgeseek.memory import planner, sizes
from edgeseek.memory.limits import MemoryLimit, MemoryLimits
from edgeseek.memory.planner import plan
from edgeseek.runtime.backend import BLOCK_TOKENS

MIB, GIB = 1 << 20, 1 << 30


def config(layers: int = 28, kv_heads: int = 2, head_dim: int = 128, **changes: int) -> ModelConfig:
    base = ModelConfig(
        architecture="qwen2",
        vocab_size=151936,
        hidden_size=1536,
        intermediate_size=8960,
        num_layers=layers,
        num_heads=12,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        max_context=131072,
        rms_eps=1e-6,
    )
    return base.with_changes(**changes)


def limits(available: int, capacity: int = 4 * GIB, name: str = "MemAvailable") -> MemoryLimits:
    return MemoryLimits((MemoryLimit(name, capacity, available),))


def test_the_block_size_is_the_runtimes() -> None:
    assert planner.KV_BLOCK_TOKENS == BLOCK_TOKENS == 32


def test_steps_are_the_engines() -> None:
    assert (sizes.STEP_TOKENS, sizes.STEP_SEQUENCES) == (STEP_TOKENS, SLOTS)
    assert sizes.VERIFIED_ROWS == MAX_ROWS


@pytest.mark.parametrize(
    ("shape", "expected"), [((28, 2, 128), 15232), ((24, 2, 64), 24 * 2 * 2 * 68), ((2, 1, 48), 2 * 2 * 52)]
)
def test_kv_bytes_per_token_at_int8(shape: tuple[int, int, int], expected: int) -> None:
    assert planner.kv_bytes_per_token(config(*shape), "int8") == expected


@pytest.mark.parametrize(("shape", "expected"), [((28, 2, 128), 28672), ((24, 2, 64), 12288)])
def test_kv_bytes_per_token_at_f16(shape: tuple[int, int, int], expected: int) -> None:
    assert planner.kv_bytes_per_token(config(*shape)) == expected


@pytest.mark.parametrize(
    ("context", "slots", "blocks"), [(1, 1, 1), (32, 1, 1), (33, 1, 2), (8192, 1, 256), (100, 8, 32)]
)
def test_blocks_are_rounded_up_per_sequence(context: int, slots: int, blocks: int) -> None:
    made = plan(config(), GIB, limits=limits(8 * GIB, 16 * GIB), context=context, slots=slots)
    assert made.blocks == blocks
    assert made.kv == blocks * 32 * 28672
    assert made.context == context
    assert made.context_reason == "asked for"


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        (4 * GIB, 4 * GIB // 10),
        (7_400_000_000, 740_000_000),
        (7_800_000_000, 800 * MIB),
        (8 * GIB, 8 * GIB // 10),
        (16 * GIB, 16 * GIB // 10),
    ],
)
def test_the_reserve_is_a_tenth_and_800_mib_at_least_on_large_boards(capacity: int, expected: int) -> None:
    assert planner.reserve_bytes(capacity) == max(expected, 800 * MIB if capacity >= 7_500_000_000 else 0)


def test_the_default_context_is_the_models_when_that_is_smaller() -> None:
    made = plan(config(max_context=2000), GIB, limits=limits(3 * GIB))
    assert (made.context, made.context_reason, made.blocks) == (2000, "the model's", 63)


def test_the_default_context_is_8192_when_the_model_knows_more() -> None:
    made = plan(config(), GIB, limits=limits(3 * GIB))
    assert (made.context, made.context_reason) == (8192, "the default")


def test_the_default_context_shrinks_to_what_fits_in_whole_blocks() -> None:
    full = plan(config(), GIB, limits=limits(3 * GIB))
    lacking = 100 * 28672 * 32 + 1
    made = plan(config(), GIB, limits=limits(full.needed + full.reserve - lacking))
    assert (made.context, made.context_reason) == (8192 - 101 * 32, "what fits")
    assert made.needed <= made.available


def test_needed_is_the_sum_of_all_kinds() -> None:
    made = plan(config(), 1_000_000_000, limits=limits(3 * GIB), slots=2, threads=4)
    assert made.file_backed == 1_000_000_000 + made.libraries
    assert made.anonymous == made.kv + made.work + made.logits + made.runtime
    assert made.needed == made.anonymous + made.file_backed
    assert made.logits == 8 * 151936 * 4
    assert made.available == 3 * GIB - made.reserve


def test_an_asked_context_that_does_not_fit_is_refused_with_the_largest_that_does() -> None:
    roomy = plan(config(), GIB, limits=limits(3 * GIB), context=4096)
    tight = limits(roomy.needed + roomy.reserve)
    assert plan(config(), GIB, limits=tight, context=4096).context == 4096
    with pytest.raises(DoesNotFitError, match="the largest context that fits is 4096") as caught:
        plan(config(), GIB, limits=tight, context=4097)
    assert caught.value.available == roomy.needed
    assert caught.value.needed == roomy.needed + 32 * 28672
    assert caught.value.exit_code == 1


def test_a_model_that_cannot_fit_is_refused_with_what_is_lacking() -> None:
    with pytest.raises(DoesNotFitError) as caught:
        plan(config(), 5 * GIB, limits=limits(2 * GIB, name="cgroup memory.max of /app"))
    error = caught.value
    assert error.available == 2 * GIB - 4 * GIB // 10
    assert error.needed > 5 * GIB
    lacking = -(-(error.needed - error.available) // 1_000_000)
    assert f"{lacking:,} MB are lacking" in str(error)
    assert "5,369 MB of weights" in str(error)
    assert "cgroup memory.max of /app" in str(error)


def test_the_limit_that_leaves_least_after_its_reserve_decides() -> None:
    group = MemoryLimit("cgroup memory.max of /a", 4 * GIB, 3 * GIB)
    both = MemoryLimits((MemoryLimit("MemAvailable", 64 * GIB, 8 * GIB), group))
    made = plan(config(), GIB, limits=both)
    assert (made.decided_by, made.available) == ("MemAvailable", 8 * GIB - 64 * GIB // 10)


def test_a_budget_caps_the_plan_without_a_reserve() -> None:
    made = plan(config(), GIB, limits=limits(3 * GIB), budget=GIB + 300 * MIB)
    assert (made.available, made.reserve, made.decided_by) == (GIB + 300 * MIB, 0, "the budget")
    assert made.context < 8192
    generous = plan(config(), GIB, limits=limits(3 * GIB), budget=100 * GIB)
    assert generous.decided_by == "MemAvailable"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "0 sequences at once"),
        ({"context": 0}, "a context of 0 tokens"),
        ({"context": 131073}, "the model knows 131072"),
        ({"budget": 0}, "budget is 0 bytes"),
    ],
)
def test_senseless_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        plan(config(), GIB, limits=limits(3 * GIB), **options)


def test_the_summary_names_the_context_the_reason_and_the_figures() -> None:
    made = plan(config(), GIB, limits=limits(3 * GIB))
    assert made.summary.startswith("context 8192 (the default); needs ")
    assert "weights 1,074 MB, KV 235 MB" in made.summary
    assert made.summary.endswith("available by MemAvailable")


@given(
    available=st.integers(0, 6 * GIB),
    weights=st.integers(0, 4 * GIB),
    slots=st.integers(1, 16),
    context=st.none() | st.integers(1, 131072),
)
def test_a_plan_never_takes_more_than_is_available(
    available: int, weights: int, slots: int, context: int | None
) -> None:
    try:
        made = plan(config(), weights, limits=limits(available), slots=slots, context=context)
    except DoesNotFitError as error:
        needed, bound, refused = error.needed, error.available, True
    else:
        needed, bound, refused = made.needed, made.available, False
        assert made.context == context or context is None
    assert (needed > bound) == refused


def experts(**changes: int) -> ModelConfig:
    """A model of which an eighth of the experts serves a token."""
    return config(**changes).with_changes(
        architecture="deepseek",
        moe=MoE(num_experts=64, experts_per_token=8, intermediate_size=1408, shared_size=2816),
    )


def test_experts_that_fit_are_planned_like_all_weights() -> None:
    made = plan(experts(), 2 * GIB, expert_bytes=GIB, limits=limits(8 * GIB, 16 * GIB))
    assert (made.weights, made.experts_on_disk) == (2 * GIB, 0)
    assert "disk" not in made.summary


def test_experts_that_do_not_fit_stay_on_the_disk_and_the_context_stays() -> None:
    full = plan(experts(), 9 * GIB, expert_bytes=8 * GIB, limits=limits(32 * GIB, 32 * GIB))
    made = plan(experts(), 9 * GIB, expert_bytes=8 * GIB, limits=limits(full.needed, 2 * GIB))
    # What is short is the reserve.
    assert (made.context, made.experts_on_disk) == (8192, made.reserve)
    assert made.weights == 9 * GIB - made.reserve
    assert made.needed == made.available
    assert (
        f"{-(-made.reserve // 1_000_000):,} MB of experts are read from the disk when needed" in made.summary
    )


def test_what_one_token_needs_of_the_experts_must_fit() -> None:
    least = plan(
        experts(), 9 * GIB, expert_bytes=8 * GIB, budget=4 * GIB, limits=limits(32 * GIB), context=32
    )
    assert least.experts_on_disk < 7 * GIB
    fixed = least.needed - least.weights
    exact = plan(
        experts(), 9 * GIB, expert_bytes=8 * GIB, budget=2 * GIB + fixed, limits=limits(32 * GIB), context=32
    )
    assert (exact.weights, exact.experts_on_disk) == (2 * GIB, 7 * GIB)
    short = 2 * GIB + fixed - 1
    with pytest.raises(DoesNotFitError, match=r"2,148 MB of weights|largest context") as caught:
        plan(experts(), 9 * GIB, expert_bytes=8 * GIB, budget=short, limits=limits(32 * GIB), context=32)
    assert caught.value.needed == 2 * GIB + fixed


def test_weights_that_are_no_experts_never_stay_on_the_disk() -> None:
    with pytest.raises(DoesNotFitError):
        plan(config(), 9 * GIB, expert_bytes=8 * GIB, limits=limits(4 * GIB))
