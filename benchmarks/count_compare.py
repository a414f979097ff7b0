"""Counts against a stored baseline: which grew, and what to say about it.

Knows nothing of how counts are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

#: Growth that is let pass, as a share. Counts repeat exactly; this is for small deliberate changes.
TOLERANCE = 0.02
#: A function on its own matters from this share of its section's total on.
MATTERS = 0.005
#: Functions that a message names.
NAMED = 5

Verdict = Literal["same", "fewer", "more", "skipped"]


@dataclass(frozen=True)
class Section:
    """Counts by name. `made_with` names compiler or interpreter: others give other counts.

    Where `summed`, the total is what matters and names are functions; else each name stands alone.
    """

    made_with: str
    counts: Mapping[str, float]
    summed: bool = True

    @property
    def total(self) -> float:
        """All counts together."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class Comparison:
    """What a section's counts say, in words."""

    verdict: Verdict
    message: str


def compare(name: str, before: Section | None, now: Section, tolerance: float = TOLERANCE) -> Comparison:
    """Judge `now`. Counts that other tools made, or that have no baseline, are skipped with the reason."""
    if before is None:
        return Comparison("skipped", f"{name}: skipped, the baseline has no such section")
    if before.made_with != now.made_with:
        reason = f"the baseline was made with {before.made_with}, this is {now.made_with}"
        return Comparison("skipped", f"{name}: skipped, {reason}")
    change = now.total / before.total - 1
    summary = f"{name}: {now.total:,.0f}, {change:+.2%} against {before.total:,.0f}"
    grown = _grown(before, now, tolerance)
    if (now.summed and change > tolerance) or grown:
        if not grown:
            grown = _changes(before, now)
        lines = [f"    {function}: {old:,.0f} -> {new:,.0f}" for function, old, new in grown[:NAMED]]
        rest = [f"    and {len(grown) - NAMED} more"] if len(grown) > NAMED else []
        return Comparison("more", "\n".join([summary, *lines, *rest]))
    return Comparison("fewer" if change < -tolerance else "same", summary)


def _changes(before: Section, now: Section) -> list[tuple[str, float, float]]:
    """Names with more than before, largest growth first."""
    pairs = [(name, before.counts.get(name, 0), new) for name, new in now.counts.items()]
    return sorted((p for p in pairs if p[2] > p[1]), key=lambda p: p[1] - p[2])


def _grown(before: Section, now: Section, tolerance: float) -> list[tuple[str, float, float]]:
    """Names beyond the tolerance. A function that is new or renamed shows in the total only."""
    least = MATTERS * before.total if now.summed else 0
    return [
        (name, old, new)
        for name, old, new in _changes(before, now)
        if name in before.counts and new > old * (1 + tolerance) and new - old > least
    ]


def load(path: Path) -> dict[str, Section]:
    """The baseline's sections; none where the file is missing."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {name: Section(**section) for name, section in stored.items()}


def save(path: Path, sections: Mapping[str, Section]) -> None:
    """Write sections with sorted names, so that changes read well in a diff."""
    stored = {
        name: {
            "made_with": section.made_with,
            "summed": section.summed,
            "counts": dict(sorted(section.counts.items())),
        }
        for name, section in sorted(sections.items())
    }
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
