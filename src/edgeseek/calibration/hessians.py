"""Second moments for GPTQ, gathered when their turn comes: as many inputs at once as memory allows.

All of a model's together would take many gigabytes, so the calibration text is run again for each batch of
inputs, and what was used is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgeseek.calibration.statistics import InputStatistics, Statistics, gather, hessian_bytes, widths
from edgeseek.llm import LLM
from edgeseek.quantize.packing import Floats

#: A tied embedding is a table too: an error in a row that is looked up counts in every direction alike. Its
#: share beside the head's Hessian was measured (docs/quantize.md).
TABLE_SHARE = 0.1

Progress = Callable[[str, int, int], None]


class HessianRounds:
    """E[x xᵀ] by matrix name, for callers that ask in the order of `names`; None for those without input."""

    def __init__(
        self,
        llm: LLM,
        windows: Sequence[Sequence[int]],
        statistics: Statistics,
        names: Sequence[str],
        budget: int,
        *,
        percentile: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._llm, self._windows, self._statistics = llm, windows, statistics
        self._keys = [*dict.fromkeys(statistics.inputs[n] for n in names if n in statistics.inputs)]
        self._budget, self._percentile, self._progress = budget, percentile, progress
        self._ready: dict[str, Floats | None] = {}

    def __call__(self, name: str) -> Floats | None:
        """The Hessian of the matrix's input."""
        key = self._statistics.inputs.get(name)
        if key is None or self._statistics.of(name) is None:
            return None
        if key not in self._ready:
            self._gather_from(key)
        found = self._ready[key]
        if found is None or name != "embed.weight":
            return found
        result: Floats = found + np.float32(TABLE_SHARE * found.diagonal().mean()) * np.eye(
            len(found), dtype=np.float32
        )
        return result

    def _gather_from(self, key: str) -> None:
        wide = widths(self._llm.config)
        batch, room = list[str](), self._budget
        for following in self._keys[self._keys.index(key) :]:
            size = hessian_bytes(wide[following])
            if batch and size > room:
                break
            batch.append(following)
            room -= size
        self._ready = {}
        found = gather(
            self._llm,
            self._windows,
            keys=batch,
            outer=True,
            percentile=self._percentile,
            progress=self._progress,
        ).found
        self._ready = {following: _taken(found[following]) for following in batch}


def _taken(statistics: InputStatistics) -> Floats | None:
    """The Hessian, in place of the sums it is made from."""
    outer, statistics.outer = statistics.outer, None
    if outer is None or not statistics.count:
        return None
    outer /= np.float32(statistics.count)
    return outer


def largest_need(llm: LLM, names: Sequence[str], statistics: Statistics) -> tuple[int, int]:
    """(bytes, columns) of the largest Hessian among the inputs of `names`."""
    wide = widths(llm.config)
    columns = max((wide[statistics.inputs[n]] for n in names if n in statistics.inputs), default=0)
    return hessian_bytes(columns), columns
