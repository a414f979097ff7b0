"""What the inputs of every matrix look like while the model runs on a text.

Per input and over all tokens: mean |x| and E[x²] of each column, some rows, and for GPTQ the second moments
E[x xᵀ]. The model runs on our own engine, in windows that do not overlap, each from position 0; nothing
depends on how windows are batched. An observer may cap outliers: "minmax" takes every value as it is,
"percentile" counts values beyond a column's percentile of |x| as that percentile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edgeseek.architectures import ModelConfig, expected_tensors
from edgeseek.calibration.inputs import inputs_of, taps_for
from edgeseek.engine.block_manager import blocks_for
from edgeseek.errors import RuntimeFailure, UsageError
from edgeseek.llm import LLM
from edgeseek.quantize.packing import Floats
from edgeseek.runtime.backend import Backend, Slice
from edgeseek.runtime.native import NativeBackend

#: Tokens of a window.
WINDOW = 256
#: A text of fewer tokens says too little of a model's inputs.
MIN_TOKENS = 512
#: Tokens that are used of a longer text, spread over all of it.
MAX_TOKENS = 1 << 15
#: Characters that surely hold a token, about.
_TOKEN_CHARACTERS = 16
#: Inputs are copied out for as many tokens at a time as this many bytes hold.
_TAP_BYTES, _LEAST_ROWS = 64 << 20, 16
#: Rows of each input that are kept, for AWQ's search.
SAMPLE_ROWS = 128
#: Percentiles below this would cap what is no outlier.
MIN_PERCENTILE = 90.0
DEFAULT_PERCENTILE = 99.99

#: Called with (what is done, steps done, steps in all).
Progress = Callable[[str, int, int], None]
Rows = Mapping[str, Floats]


@dataclass
class InputStatistics:
    """Sums over `count` rows of one input with `width` columns."""

    width: int
    count: int = 0
    absolute: npt.NDArray[np.float64] = field(init=False)
    square: npt.NDArray[np.float64] = field(init=False)
    #: Σ x xᵀ, only where it was asked for.
    outer: Floats | None = None
    #: Rows [n, width], about SAMPLE_ROWS, spread evenly over the text; where they were asked for.
    sample: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.absolute = np.zeros(self.width)
        self.square = np.zeros(self.width)

    @property
    def mean_absolute(self) -> Floats:
        """Mean |x| of each column."""
        return (self.absolute / max(self.count, 1)).astype(np.float32)

    @property
    def importance(self) -> Floats:
        """E[x²] of each column."""
        return (self.square / max(self.count, 1)).astype(np.float32)

    @property
    def hessian(self) -> Floats | None:
        """E[x xᵀ], where it was gathered and anything was seen."""
        return None if self.outer is None or not self.count else self.outer / np.float32(self.count)

    @property
    def rows(self) -> Floats:
        """The sampled rows [n, width]."""
        return np.concatenate(self.sample) if self.sample else np.empty((0, self.width), np.float32)


@dataclass(frozen=True)
class Statistics:
    """By input; `inputs` maps a matrix's package name to its input. Matrices without one have no entry."""

    inputs: Mapping[str, str]
    found: Mapping[str, InputStatistics]
    tokens: int

    def of(self, name: str) -> InputStatistics | None:
        """Those of the matrix's input, None where nothing was seen."""
        found = self.found.get(self.inputs.get(name, ""))
        return found if found is not None and found.count else None

    def importance(self, name: str) -> Floats | None:
        """E[x²] of the matrix's input columns."""
        found = self.of(name)
        return None if found is None else found.importance


def calibration_tokens(llm: LLM, text: str, limit: int = MAX_TOKENS) -> list[list[int]]:
    """Windows of the text's token ids, from places spread evenly over one of more than `limit` tokens.

    Of a long text only those places are tokenized. Raises UsageError for a text that is too short.
    """
    window = min(WINDOW, llm.context)
    wanted = max(1, limit // window)
    span = window * _TOKEN_CHARACTERS
    if len(text) > wanted * span:
        last = len(text) - span
        places = [last * i // max(wanted - 1, 1) for i in range(wanted)]
        windows = [llm.tokenizer.encode(text[place : place + span])[:window] for place in places]
        return [ids for ids in windows if len(ids) > 1]
    ids = llm.tokenizer.encode(text)
    if len(ids) < MIN_TOKENS:
        raise UsageError(
            f"the calibration text has {len(ids)} tokens; at least {MIN_TOKENS} are needed, and some ten "
            "thousand of the kind the model will meet are better"
        )
    starts = range(0, len(ids) - window + 1, window)
    wanted = min(len(starts), wanted)
    chosen = [starts[i * len(starts) // wanted] for i in range(wanted)]
    return [ids[start : start + window] for start in chosen]


def hessian_bytes(width: int) -> int:
    """Memory that one input's Hessian takes while it is gathered and then inverted: float32, then float64."""
    return width * width * (4 + 4 * 8)


def widths(config: ModelConfig) -> dict[str, int]:
    """Columns of each input."""
    shapes = expected_tensors(config)
    return {key: shapes[name][0][1] for name, key in inputs_of(config).items()}


def gather(
    llm: LLM,
    windows: Sequence[Sequence[int]],
    *,
    keys: Sequence[str] | None = None,
    outer: bool = False,
    sample: bool = False,
    percentile: float | None = None,
    progress: Progress | None = None,
) -> Statistics:
    """Run `windows` of token ids through the model and gather statistics of the inputs `keys` (None: all).

    `outer` asks for E[x xᵀ], `sample` for rows. `percentile` caps each column (see the module's text), which
    takes a second run. Raises UsageError for a backend without taps or a percentile out of range,
    RuntimeFailure for activations that are not finite.
    """
    if percentile is not None and not MIN_PERCENTILE <= percentile < 100:
        raise UsageError(f"the percentile is {percentile:g}; it must be from {MIN_PERCENTILE:g} to below 100")
    if not isinstance(llm.backend, NativeBackend):
        raise UsageError("calibration reads the model's inputs, which the native backend alone shows")
    wide = widths(llm.config)
    wanted = [*wide] if keys is None else [*keys]
    limits: Mapping[str, Floats] = {}
    if percentile is not None:
        tops = {key: _Top(wide[key]) for key in wanted}
        share = 1 - percentile / 100
        total = sum(map(len, windows))
        _run(llm, windows, wanted, lambda k, rows: tops[k].add(rows, share, total), "observing", progress)
        limits = {key: top.limit(share) for key, top in tops.items()}
    found = {
        key: InputStatistics(wide[key], outer=np.zeros((wide[key],) * 2, np.float32) if outer else None)
        for key in wanted
    }
    stride = max(1, sum(map(len, windows)) // SAMPLE_ROWS) if sample else 0

    def take(key: str, rows: Floats) -> None:
        if not np.isfinite(rows).all():
            raise RuntimeFailure(f"the input {key} is not finite; the weights or an activation overflowed")
        limit = limits.get(key)
        _add(found[key], rows if limit is None else np.clip(rows, -limit, limit), stride)

    _run(llm, windows, wanted, take, "calibrating", progress)
    return Statistics(inputs_of(llm.config), found, sum(map(len, windows)))


def _add(into: InputStatistics, rows: Floats, stride: int) -> None:
    if stride:
        into.sample.append(rows[-into.count % stride :: stride].copy())
    into.count += len(rows)
    into.absolute += np.abs(rows).sum(axis=0, dtype=np.float64)
    into.square += np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
    if into.outer is not None:
        into.outer += rows.T @ rows


class _Top:
    """The largest |x| of each column, as many as a percentile needs."""

    def __init__(self, width: int) -> None:
        self._largest = np.empty((0, width), np.float32)
        self._count = 0

    def add(self, rows: Floats, share: float, total: int) -> None:
        keep = math.ceil(share * total) + 1
        self._count += len(rows)
        joined = np.concatenate([self._largest, np.abs(rows)])
        if len(joined) > keep:
            joined = np.partition(joined, len(joined) - keep, axis=0)[-keep:]
        self._largest = joined

    def limit(self, share: float) -> Floats:
        """The smallest value that at most `share` of what was seen exceeds."""
        if not self._count:
            return np.zeros(self._largest.shape[1], np.float32)
        beyond = min(math.floor(share * self._count), len(self._largest) - 1)
        result: Floats = np.sort(self._largest, axis=0)[-1 - beyond]
        return result


def _run(
    llm: LLM,
    windows: Sequence[Sequence[int]],
    keys: Sequence[str],
    take: Callable[[str, Floats], None],
    what: str,
    progress: Progress | None,
) -> None:
    """Give `take` the inputs of one window after another, in pieces of as many tokens as fit _TAP_BYTES."""
    taps = taps_for([*keys])
    at_once = max(_LEAST_ROWS, _TAP_BYTES // _tap_bytes(llm.config, keys))
    for done, window in enumerate(windows):

        def work(backend: Backend, blocks: list[int], window: Sequence[int] = window) -> None:
            if not isinstance(backend, NativeBackend):
                raise RuntimeFailure("the backend was exchanged while it was in use")
            for past in range(0, len(window), at_once):
                # The head's input has a row for each row of logits.
                part = Slice(window[past : past + at_once], past, blocks, "all")
                tapped = backend.forward_with_taps([part], taps)[1]
                for key in keys:
                    take(key, _rows_of(key, tapped))

        llm.engine.borrow(blocks_for(len(window)), work)
        if progress is not None:
            progress(what, done + 1, len(windows))


def _tap_bytes(config: ModelConfig, keys: Sequence[str]) -> int:
    """Bytes that the taps of one token take."""
    wide, moe = widths(config), config.moe
    taps = dict[str, int]()
    for key in keys:
        tap = key.partition("@")[0]
        taps[tap] = wide[key] * (moe.experts_per_token if moe is not None and tap.endswith(".experts") else 1)
    return 4 * max(1, sum(taps.values()))


def _rows_of(key: str, tapped: Rows) -> Floats:
    tap, at, number = key.partition("@")
    if not at:
        return tapped[tap]
    expert = int(number)
    routing = tapped[tap.rpartition(".")[0] + ".routing"]
    chosen = routing[:, expert] != 0
    if not tap.endswith(".experts"):
        part: Floats = tapped[tap][chosen]
        return part
    # A row holds its experts' inner values side by side, in the order of their numbers.
    each = int((routing != 0).sum(axis=1).max(initial=1))
    inner = tapped[tap].reshape(len(routing), each, -1)
    slots = (routing[:, :expert] != 0).sum(axis=1)
    result: Floats = inner[np.flatnonzero(chosen), slots[chosen]]
    return result
