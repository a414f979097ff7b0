"""The report of a quantization, as JSON or as one HTML page without scripts or outside fetches."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from edgeseek.calibration.quantization import Outcome
from edgeseek.errors import StorageError

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .75rem; border-bottom: 1px solid #8884; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td meter { width: 6rem; }
.wide { overflow-x: auto; }
"""


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Everything, as plain JSON values."""
    found = outcome.divergence
    return {
        "model": outcome.name,
        "output": str(outcome.output),
        "format": outcome.format,
        "recipe": outcome.recipe,
        "method": outcome.method,
        "calibration": {"tokens": outcome.tokens, "observer": outcome.observer} if outcome.tokens else None,
        "bytes": outcome.size,
        "source_bytes": outcome.source_size,
        "bits_per_weight": outcome.bits_per_weight,
        "mean_kl": None if found is None else found.mean_kl,
        "perplexity": None if found is None else found.perplexity,
        "source_perplexity": None if found is None else found.reference_perplexity,
        "measured_tokens": None if found is None else found.tokens,
        "source_was": outcome.reference or None,
        "without_statistics": [*outcome.without_statistics],
        "left_out": [*outcome.ignored],
        "tensors": [
            {
                "name": line.name,
                "shape": [*line.shape],
                "source": line.source,
                "wanted": line.wanted,
                "stored": line.stored,
                "bits": line.bits,
                "bytes": line.size,
                "kept": line.kept,
                "relative_error": line.error,
            }
            for line in outcome.tensors
        ],
    }


def write_report(outcome: Outcome, path: Path) -> None:
    """Write the report; the ending, .json or .html, says as what. Raises StorageError."""
    text = as_page(outcome) if path.suffix == ".html" else json.dumps(as_json(outcome), indent=1) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write the report {path}: {error.strerror}") from error


def as_page(outcome: Outcome) -> str:
    """The HTML page."""
    facts = [
        ("recipe", outcome.recipe),
        ("method", outcome.method),
        ("calibration", f"{outcome.tokens:,} tokens, {outcome.observer}" if outcome.tokens else "none"),
        ("size", f"{outcome.size:,} bytes (source {outcome.source_size:,})"),
        ("bits a weight", f"{outcome.bits_per_weight:.3f}"),
    ]
    found = outcome.divergence
    if found is not None:
        facts += [
            ("KL divergence", f"{found.mean_kl:.6f} nats a token over {found.tokens:,} tokens"),
            ("perplexity", f"{found.perplexity:.4f} (source {found.reference_perplexity:.4f})"),
        ]
    if outcome.reference:
        facts.append(("the source was", outcome.reference))
    if outcome.without_statistics:
        facts.append(("rounded without seeing inputs", ", ".join(outcome.without_statistics)))
    if outcome.ignored:
        facts.append(("left out", ", ".join(outcome.ignored)))
    worst = max((line.error for line in outcome.tensors), default=0.0) or 1.0
    rows = "\n".join(
        "<tr>"
        + _cell(line.name)
        + _cell(" × ".join(map(str, line.shape)))
        + _cell(line.source)
        + _cell(line.stored if line.stored == line.wanted else f"{line.stored} (for {line.wanted})")
        + _number(f"{line.bits:.2f}")
        + _number("kept" if line.kept else f"{line.error:.5f}")
        + f'<td><meter max="{worst:.6g}" value="{line.error:.6g}"></meter></td></tr>'
        for line in outcome.tensors
    )
    head = "".join(
        f"<th{' class=number' if number else ''}>{name}</th>"
        for name, number in (
            ("tensor", False), ("shape", False), ("source", False), ("scheme", False), ("bits", True),
            ("relative error", True), ("", False),
        )
    )  # fmt: skip
    title = html.escape(f"{outcome.name} as {outcome.recipe}")
    listed = "\n".join(f"<tr>{_cell(name)}{_cell(value)}</tr>" for name, value in facts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{title}</h1>\n<table>{listed}</table>\n<h2>Tensors</h2>\n"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>'
        "</body></html>\n"
    )


def _cell(text: str) -> str:
    return f"<td>{html.escape(text)}</td>"


def _number(text: str) -> str:
    return f'<td class="number">{html.escape(text)}</td>'
