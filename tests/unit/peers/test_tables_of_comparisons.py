"""Medians, ratios against each peer, and absent figures in the table."""

from __future__ import annotations

from benchmarks.peer_runs import Samples
from benchmarks.peer_tables import comparison, describe, growth_table, table
from benchmarks.work import Result


def samples(
    family: str, prefill: list[float], *, streams: float | None = 100.0, peak: int = 200_000_000
) -> Samples:
    results = [Result(value, value / 10, streams, peak, peak // 2, peak // 2) for value in prefill]
    return Samples(family, results, warm_s=[0.4, 0.6, 0.5], cold_s=[2.0])


def measured() -> dict[str, Samples]:
    return {
        "llama.cpp": samples("llama.cpp", [100.0, 300.0, 200.0]),
        "llama.cpp, flash attention": samples("llama.cpp", [250.0], peak=400_000_000),
        "other": samples("other", [50.0], streams=None),
        "edgeseek": samples("edgeseek", [500.0], streams=400.0, peak=100_000_000),
    }


def test_a_peers_ratio_is_to_the_better_of_its_variants() -> None:
    rows = {record["measure"]: record for record in comparison(measured())}
    assert rows["prefill, tok/s"]["ratios"] == {"llama.cpp": 2.0, "other": 10.0}
    assert rows["peak RSS, MB"]["ratios"] == {"llama.cpp": 0.5, "other": 0.5}


def test_values_are_medians_in_the_rows_unit() -> None:
    rows = {record["measure"]: record for record in comparison(measured())}
    assert rows["prefill, tok/s"]["values"]["llama.cpp"] == 200.0
    assert rows["start to first byte, warm, s"]["values"]["llama.cpp"] == 0.5
    assert rows["peak RSS, MB"]["values"]["llama.cpp, flash attention"] == 400.0


def test_what_an_engine_does_not_do_is_a_dash_without_a_ratio() -> None:
    lines = table(comparison(measured())).splitlines()
    assert lines[:2] == [
        "| | llama.cpp | llama.cpp, flash attention | other | edgeseek | to llama.cpp | to other |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    assert "| streams together, tok/s | 100.0 | 100.0 | – | 400.0 | 4.00 | – |" in lines


def test_edgeseek_alone_has_no_ratios() -> None:
    lines = table(comparison({"edgeseek": samples("edgeseek", [500.0])})).splitlines()
    assert lines[0] == "| | edgeseek |"
    assert lines[2] == "| prefill, tok/s | 500.0 |"


def test_growth_shows_a_dash_where_nothing_was_measured() -> None:
    record = {
        "engine": "other",
        "prompt_tokens": 2048,
        "streams": 8,
        "threads": 2,
        "prefill_tokens_per_s": 50.04,
        "decode_tokens_per_s": 5.0,
        "streams_tokens_per_s": None,
    }
    assert growth_table([record]).splitlines()[-1] == "| other | 2048 | 8 | 2 | 50.0 | 5.0 | – |"


def test_a_models_part_names_machine_versions_date_and_failures() -> None:
    record = {
        "model": "m.gguf",
        "date": "2026-12-01",
        "device": "Raspberry Pi 5",
        "versions": {"llama.cpp": "0.3.36", "edgeseek": "0.1.0"},
        "threads": 4,
        "rounds": 3,
        "instruction_set": "neondot",
        "comparison": comparison(measured()),
        "failures": {"OpenVINO GenAI": "no such type"},
        "bandwidth_bytes_per_s": 10e9,
        "decode_efficiency": 0.5,
        "peak_rss_bytes": 100e6,
        "peak_rss_allowed_bytes": 300e6,
    }
    text = describe(record)
    assert text.startswith(
        "#### m.gguf\n\n2026-12-01, Raspberry Pi 5, 4 threads, neondot; medians of 3 alternating rounds. "
        "llama.cpp 0.3.36, edgeseek 0.1.0.\n"
    )
    assert "OpenVINO GenAI could not run this model: `no such type`" in text
