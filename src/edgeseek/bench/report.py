"""What a bench run found, as a value; `as_json` is what `bench --json` prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from edgeseek.bench.memory_watch import LOW_BYTES, ProcessMemory
from edgeseek.bench.roofline import Roofline
from edgeseek.bench.sustained import Sustained
from edgeseek.doctor.device import Device

Limit = Literal["bandwidth", "int8 peak"]


@dataclass(frozen=True)
class Row:
    """One workload: `amount` is what it grew by (tokens of prompt or context, streams)."""

    kind: Literal["prefill", "decode", "streams"]
    amount: int
    tokens_per_s: float
    step_s: float
    #: Bytes per token for "bandwidth", multiply-accumulates per token for "int8 peak".
    cost_per_token: float
    limit: Limit

    @property
    def label(self) -> str:
        """The row's name in a table."""
        return {
            "prefill": f"prefill {self.amount} tokens",
            "decode": f"decode at context {self.amount}",
            "streams": f"decode {self.amount} {'stream' if self.amount == 1 else 'streams'}",
        }[self.kind]

    def efficiency(self, roofline: Roofline) -> float:
        """Share of the limit that is reached, 0 to about 1."""
        most = roofline.bandwidth if self.limit == "bandwidth" else roofline.int8_peak
        return self.tokens_per_s * self.cost_per_token / most


@dataclass
class Report:
    """Filled while the suite runs, so that what was measured before an interruption is kept."""

    device: Device
    model: str
    threads: int
    isa: str
    largest_context: int
    roofline: Roofline | None = None
    rows: list[Row] = field(default_factory=list)
    #: Seconds to the first byte: "cold", "warm", and "warm, --preload X".
    starts: dict[str, float] = field(default_factory=dict)
    memory: ProcessMemory | None = None
    least_available: int | None = None
    sustained: Sustained | None = None
    #: What was left out and why, one line each.
    skipped: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def memory_is_low(self) -> bool:
        """Whether less than 800 MB were available at some moment."""
        return self.least_available is not None and self.least_available < LOW_BYTES

    def growth(self) -> list[str]:
        """How the cost of a token grew from the first to the last size of each kind."""
        lines = []
        for kind, unit in (("prefill", "tokens"), ("decode", "tokens of context"), ("streams", "streams")):
            rows = [row for row in self.rows if row.kind == kind]
            if len(rows) > 1:
                first, last = rows[0], rows[-1]
                what = "a step" if kind == "streams" else "a token"
                cost = (
                    last.step_s / first.step_s
                    if kind == "streams"
                    else first.tokens_per_s / last.tokens_per_s
                )
                lines.append(
                    f"{first.amount} → {last.amount} {unit} ({last.amount / first.amount:.0f} ×): "
                    f"{what} costs {cost:.2f} ×"
                )
        return lines

    def as_json(self) -> dict[str, Any]:
        """Plain values: seconds, bytes, tokens per second; null where nothing was measured."""
        rows = []
        for row in self.rows:
            share = None if self.roofline is None else round(row.efficiency(self.roofline), 4)
            rows.append({**asdict(row), "efficiency": share})
        sustained = None
        if self.sustained is not None:
            sustained = {
                "samples": [asdict(s) for s in self.sustained.samples],
                "peak_tokens_per_s": self.sustained.peak,
                "sustained_tokens_per_s": self.sustained.sustained,
                "sustained_over_peak": self.sustained.share,
            }
        return {
            "device": asdict(self.device),
            "model": self.model,
            "threads": self.threads,
            "isa": self.isa,
            "roofline": None if self.roofline is None else asdict(self.roofline),
            "rows": rows,
            "starts_s": self.starts,
            "memory": None if self.memory is None else asdict(self.memory),
            "least_available_bytes": self.least_available,
            "largest_context": self.largest_context,
            "sustained": sustained,
            "skipped": self.skipped,
            "interrupted": self.interrupted,
        }
