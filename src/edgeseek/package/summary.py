"""What a conversion did, per tensor and as one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeseek.package.plan import Action
from edgeseek.quantize.report import SquareSums


@dataclass(frozen=True)
class TensorOutcome:
    """What became of one matrix or vector. `error` is the relative RMS error, 0 where exact."""

    name: str
    action: Action
    source_dtype: str
    scheme: str
    is_matrix: bool
    exact: bool
    sums: SquareSums

    @property
    def error(self) -> float:
        """Relative RMS error, 0 where exact."""
        return self.sums.relative_rms


@dataclass(frozen=True)
class ConversionReport:
    """The result of a conversion; `package_bytes` is the size of the weights' file.

    `ignored` names tensors of the checkpoint that add nothing to the model and were left out.
    """

    path: Path
    package_bytes: int
    outcomes: tuple[TensorOutcome, ...]
    ignored: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """One line: what was kept, converted and requantized, with the error where there is one."""
        matrices = [outcome for outcome in self.outcomes if outcome.is_matrix]
        kept = Counter(outcome.scheme for outcome in matrices if outcome.action == "kept")
        parts = []
        if count_kept := sum(kept.values()):
            kinds = ", ".join(f"{count} {scheme}" for scheme, count in kept.most_common())
            noun = "matrix" if count_kept == 1 else "matrices"
            parts.append(f"kept {count_kept} {noun} as stored ({kinds})")
        for action in ("converted", "requantized"):
            pairs = Counter((o.source_dtype, o.scheme) for o in matrices if o.action == action)
            for (dtype, scheme), count in pairs.most_common():
                group = [
                    o for o in matrices if (o.action, o.source_dtype, o.scheme) == (action, dtype, scheme)
                ]
                parts.append(f"{action} {count} {dtype} to {scheme} ({_error_text(group)})")
        if all(outcome.action == "kept" for outcome in matrices):
            parts.append("nothing converted or requantized")
        if self.ignored:
            more = f" and {len(self.ignored) - 1} more" if len(self.ignored) > 1 else ""
            parts.append(f"left out {self.ignored[0]}{more}, derived or repeated")
        return "; ".join(parts)


def _error_text(group: Sequence[TensorOutcome]) -> str:
    if all(outcome.exact for outcome in group):
        return "exactly"
    total = SquareSums()
    for outcome in group:
        total += outcome.sums
    worst = max(group, key=lambda outcome: outcome.error)
    text = f"relative error {total.relative_rms:.2g}"
    return text if len(group) == 1 else f"{text}, at most {worst.error:.2g} in {worst.name}"
