"""AWQ's scales for a whole model: which tensors fold them, searched input by input.

A scale of an input's columns is folded into what makes the input: an RMSNorm's weight (and every matrix that
reads it, a router too), the rows of `up` for `down`, the rows of `v` for `o`. Where no tensor can take the
inverse there is no scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgeseek.architectures import ModelConfig
from edgeseek.calibration.statistics import Statistics
from edgeseek.export.source import ModelSource, SourceTensor
from edgeseek.quantize.awq import RoundTrip, search
from edgeseek.quantize.least_error import round_to_least_error
from edgeseek.quantize.packing import Floats, values
from edgeseek.quantize.schemes import SCHEMES, Scheme

#: Rows of a matrix that the search looks at, spread over all.
_ROWS = 64

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Scales:
    """Factors by package name, as `export.scaled.ScaledSource` takes them."""

    rows: dict[str, Floats] = field(default_factory=dict)
    columns: dict[str, Floats] = field(default_factory=dict)

    def importance(self, statistics: Statistics, name: str) -> Floats | None:
        """E[x²] of a matrix's input after its scale."""
        found = statistics.importance(name)
        scale = self.columns.get(name)
        return found if found is None or scale is None else found / (scale * scale)


@dataclass(frozen=True)
class _Fold:
    """Matrices that read an input, and the tensor (without its ending) whose output that is."""

    readers: tuple[str, ...]
    maker: str
    #: Heads of columns that read the same head of the maker's rows: query heads that share a key head.
    repeats: int = 1
    head_dim: int = 0


def find_scales(
    source: ModelSource,
    statistics: Statistics,
    scheme_of: Callable[[str], Scheme],
    progress: Progress | None = None,
) -> Scales:
    """Search the scales of every input that can be folded; `scheme_of` tells a matrix's scheme."""
    scales = Scales()
    folds = [fold for fold in _folds(source.config, source.tensors) if _seen(fold, statistics)]
    for done, fold in enumerate(folds):
        _search(source, statistics, scheme_of, fold, scales)
        if progress is not None:
            progress(done + 1, len(folds))
    return scales


def _seen(fold: _Fold, statistics: Statistics) -> bool:
    return statistics.of(fold.readers[0]) is not None


def _search(
    source: ModelSource,
    statistics: Statistics,
    scheme_of: Callable[[str], Scheme],
    fold: _Fold,
    scales: Scales,
) -> None:
    seen = statistics.of(fold.readers[0])
    # Routers are not rounded and experts that no token reached tell nothing of the choice.
    rounded = [name for name in fold.readers if not name.endswith(".router.weight")]
    matrices = [(_sampled_rows(source.tensors[n]), _round_trip(scheme_of(n))) for n in rounded[:16]]
    if seen is None or not matrices:
        return
    scale = search(matrices, seen.mean_absolute, seen.importance, seen.rows, lambda raw: _shared(raw, fold))
    if (scale == 1).all():
        return
    for name in fold.readers:
        scales.columns[name] = scale
    made = np.reciprocal(_by_row(scale, fold))
    for name in (f"{fold.maker}.weight", f"{fold.maker}.bias"):
        if name in source.tensors:
            scales.rows[name] = made


def _folds(config: ModelConfig, tensors: Mapping[str, SourceTensor]) -> Iterator[_Fold]:
    for layer in range(config.num_layers):
        part = f"layers.{layer}."
        attention = [f"{part}attn.{name}.weight" for name in ("q", "k", "v", "q_a", "kv_a")]
        yield _Fold(tuple(n for n in attention if n in tensors), f"{part}attn_norm")
        if config.latent is None:
            shared = config.num_heads // config.num_kv_heads
            yield _Fold((f"{part}attn.o.weight",), f"{part}attn.v", shared, config.head_dim)
        forward = [n for n in tensors if n.startswith(part + "mlp.") and _reads_norm(n)]
        yield _Fold(tuple(forward), f"{part}mlp_norm")
        for name in tensors:
            if name.startswith(part + "mlp.") and name.endswith(".down.weight"):
                yield _Fold((name,), name.removesuffix("down.weight") + "up")


def _reads_norm(name: str) -> bool:
    return name.endswith((".gate.weight", ".up.weight", ".router.weight"))


def _sampled_rows(tensor: SourceTensor) -> Floats:
    """Some rows, evenly spread, read in whole units."""
    rows, unit = tensor.shape[0], tensor.unit
    pieces = max(1, min(_ROWS, rows) // max(unit, 16))
    each = -(-max(unit, 16) // unit) * unit
    starts = sorted({rows * i // pieces // unit * unit for i in range(pieces)})
    return np.concatenate([tensor.floats(start, min(start + each, rows)) for start in starts])


def _round_trip(scheme: Scheme) -> RoundTrip:
    if not SCHEMES[scheme].code_bits:
        return lambda rows, _: rows
    return lambda rows, importance: values(round_to_least_error(rows, scheme, importance))


def _shared(scale: Floats, fold: _Fold) -> Floats:
    """One scale for the columns that read the same row of the maker: their geometric mean."""
    if fold.repeats == 1:
        return scale
    heads = np.log(scale).reshape(-1, fold.repeats, fold.head_dim).mean(axis=1, keepdims=True)
    result: Floats = np.exp(np.repeat(heads, fold.repeats, axis=1)).reshape(-1).astype(np.float32)
    return result


def _by_row(scale: Floats, fold: _Fold) -> Floats:
    if fold.repeats == 1:
        return scale
    result: Floats = scale.reshape(-1, fold.repeats, fold.head_dim)[:, 0].reshape(-1)
    return result
