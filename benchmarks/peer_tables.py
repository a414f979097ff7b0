"""Comparisons as Markdown, and their place in a page: between markers, one pair for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peer_engines import OURS
from benchmarks.peer_runs import Samples

MEGABYTE = 1e6
ABSENT = "–"

#: (label, field, unit's divisor, decimals, more is better)
ROWS = (
    ("prefill, tok/s", "prefill_tokens_per_s", 1.0, 1, True),
    ("decode of one stream, tok/s", "decode_tokens_per_s", 1.0, 1, True),
    ("streams together, tok/s", "streams_tokens_per_s", 1.0, 1, True),
    ("peak RSS, MB", "peak_rss_bytes", MEGABYTE, 0, False),
    ("– of it anonymous, MB", "anonymous_bytes", MEGABYTE, 0, False),
    ("– of it file-backed, MB", "file_bytes", MEGABYTE, 0, False),
    ("start to first byte, warm, s", "warm_s", 1.0, 2, False),
    ("start to first byte, cold, s", "cold_s", 1.0, 2, False),
)


def comparison(samples: Mapping[str, Samples]) -> list[dict[str, Any]]:
    """One record per row of the table; `ratios` is ours to each peer, at the better of a peer's variants."""
    families = list(dict.fromkeys(taken.family for taken in samples.values() if taken.family != OURS))
    records = []
    for label, name, divisor, decimals, more in ROWS:
        medians = {engine: taken.median(name) for engine, taken in samples.items()}
        values = {engine: None if value is None else value / divisor for engine, value in medians.items()}
        ours, ratios = values[OURS], {}
        for family in families:
            known = [values[engine] for engine, taken in samples.items() if taken.family == family]
            theirs = [value for value in known if value]
            best = (max(theirs) if more else min(theirs)) if theirs else None
            ratios[family] = ours / best if best and ours is not None else None
        records.append({"measure": label, "values": values, "ratios": ratios, "decimals": decimals})
    return records


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """The comparison as Markdown: a column for each contender, then our ratio to each peer."""
    heads = [*records[0]["values"], *(f"to {family}" for family in records[0]["ratios"])]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for record in records:
        cells = [_number(value, record["decimals"]) for value in record["values"].values()]
        cells += [_number(value, 2) for value in record["ratios"].values()]
        lines.append(f"| {record['measure']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def growth_table(records: Sequence[Mapping[str, Any]]) -> str:
    """The growth records as Markdown."""
    columns = ("engine", "prompt_tokens", "streams", "threads")
    rates = ("prefill_tokens_per_s", "decode_tokens_per_s", "streams_tokens_per_s")
    lines = [
        "| engine | prompt | streams | threads | prefill, tok/s | decode, tok/s | together, tok/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in records:
        cells = [str(record[name]) for name in columns] + [_number(record[name], 1) for name in rates]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def describe(record: Mapping[str, Any]) -> str:
    """One model's record as Markdown: heading, circumstances, table, limits."""
    bandwidth, efficiency = record["bandwidth_bytes_per_s"] / 1e9, record["decode_efficiency"]
    peak, allowed = record["peak_rss_bytes"] / MEGABYTE, record["peak_rss_allowed_bytes"] / MEGABYTE
    engines = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    settings = (
        f"{record['date']}, {record['device']}, {record['threads']} threads, {record['instruction_set']}"
    )
    lines = [
        f"#### {record['model']}",
        "",
        f"{settings}; medians of {record['rounds']} alternating rounds. {engines}.",
        "",
        table(record["comparison"]),
        "",
        f"Bandwidth of a read-only sweep: {bandwidth:.1f} GB/s; decode reads at {efficiency:.0%} of it.",
        f"Peak RSS {peak:.0f} MB; package + KV + 100 MB is {allowed:.0f} MB.",
    ]
    lines += [f"{name} could not run this model: `{reason}`" for name, reason in record["failures"].items()]
    if "growth" in record:
        lines += ["", growth_table(record["growth"])]
    return "\n".join(lines)


def markers(name: str) -> tuple[str, str]:
    """The lines that enclose a part of a page."""
    return f"<!-- {name}: begin, written by benchmarks/peers.py -->", f"<!-- {name}: end -->"


def with_model(page: str, model: str, content: str) -> str:
    """`page` with a model's comparison replaced, or added behind the other models' if it is new.

    Everything outside that model's markers stays as it is. Raises ValueError if the page has no place for
    comparisons, or a pair of markers that is not closed.
    """
    begin, end = markers("peers")
    before, found, rest = page.partition(begin)
    inside, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no place for comparisons: put these lines where they belong:\n{begin}\n{end}")
    first, last = markers(f"peers on {model}")
    part = f"{first}\n{content}\n{last}\n"
    head, known, tail = inside.partition(f"{first}\n")
    if known:
        _, closed, tail = tail.partition(f"{last}\n")
        if not closed:
            raise ValueError(f"the part on {model} is not closed: put this line behind it:\n{last}")
        inside = head + part + tail
    else:
        inside = f"{inside.rstrip()}\n\n{part}" if inside.strip() else f"\n{part}"
    return f"{before}{begin}{inside}{end}{after}"


def _number(value: float | None, decimals: int) -> str:
    return ABSENT if value is None else f"{value:.{decimals}f}"
