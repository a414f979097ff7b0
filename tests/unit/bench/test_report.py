"""Shares of the limits, growth, and what a plan leaves out, as exact numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgeseek.bench import Device, Plan, Report, Row
from edgeseek.bench.memory_watch import MemoryWatch
from edgeseek.bench.roofline import Roofline
from edgeseek.bench.sustained import Sample, Sustained
from edgeseek.bench.work import macs_per_token
from tests.unit.cli.fakes import CONFIG
from tests.unit.memory.machine import Machine

LIMITS = Roofline(bandwidth=20e9, unaligned_bandwidth=19e9, int8_peak=200e9, sweep_bytes=1 << 30)


def report(*rows: Row) -> Report:
    return Report(Device("board", "cpu"), "model", 4, "neondot", 8192, roofline=LIMITS, rows=list(rows))


def test_decode_is_a_share_of_the_bandwidth_and_prefill_of_the_peak() -> None:
    assert Row("decode", 128, 10.0, 0.1, 1e9, "bandwidth").efficiency(LIMITS) == pytest.approx(0.5)
    assert Row("prefill", 512, 100.0, 5.12, 1.5e9, "int8 peak").efficiency(LIMITS) == pytest.approx(0.75)


def test_growth_compares_the_first_size_with_the_last() -> None:
    rows = (
        Row("prefill", 128, 100.0, 1.28, 1, "int8 peak"),
        Row("prefill", 512, 80.0, 6.4, 1, "int8 peak"),
        Row("streams", 1, 10.0, 0.1, 1, "bandwidth"),
        Row("streams", 8, 40.0, 0.2, 1, "bandwidth"),
    )
    assert report(*rows).growth() == [
        "128 → 512 tokens (4 ×): a token costs 1.25 ×",
        "1 → 8 streams (8 ×): a step costs 2.00 ×",
    ]


def test_of_two_measurements_of_the_limits_the_larger_counts() -> None:
    other = replace(LIMITS, bandwidth=30e9, int8_peak=100e9)
    assert LIMITS.best_with(other) == replace(LIMITS, bandwidth=30e9)


def test_less_than_800_mb_is_low() -> None:
    assert not report().memory_is_low
    assert replace(report(), least_available=799_000_000).memory_is_low
    assert not replace(report(), least_available=800_000_000).memory_is_low


def test_sustained_is_the_median_of_the_last_third() -> None:
    samples = tuple(
        Sample(5.0 * i, rate, None, None) for i, rate in enumerate((20, 20, 19, 15, 12, 12, 10, 11, 12))
    )
    found = Sustained(samples)
    assert (found.peak, found.sustained, found.share) == (20, 11, 0.55)


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    plan, skipped = Plan().fitting(1000, 32768)
    assert (plan.prefill, plan.decode, plan.streams) == ((128, 512), (128,), (1, 2, 4))
    assert skipped == [
        "prefill 2048: the model and the memory hold 1000 tokens",
        "decode at context 2048, 8192: the model and the memory hold 1000 tokens",
        "streams 8, 16: memory holds 1000 tokens",
    ]


def test_multiply_accumulates_are_those_of_the_layers_matrices() -> None:
    # 2 layers of q, o: 64 × 64, k, v: 64 × 32, gate, up, down: 64 × 128.
    assert macs_per_token(CONFIG) == 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)


def test_the_least_available_memory_is_kept(machine: Machine) -> None:
    with MemoryWatch(machine.settings, interval_s=60) as watch:
        assert watch.minimum == 6 << 30
        machine.memory(available=1 << 30, total=8 << 30)
    assert watch.minimum == 1 << 30
