"""Writes a model as a GGUF file: any checkpoint or package in, ordinary tensors out, rounded with care.

What the source stores in the wanted type is kept to the bit; everything else is rounded so that the
squared error, weighted by column where an importance is given, is least. Streams pieces of rows and
writes atomically. Knows nothing of running a model or of how importance is measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeseek.architectures import GgufOutline, TensorRule, gguf_outline
from edgeseek.errors import UnsupportedCheckpointError
from edgeseek.export.gguf_header import TensorInfo, header, padding
from edgeseek.export.gguf_metadata import metadata_of
from edgeseek.export.gguf_pieces import Plan, stream
from edgeseek.export.gguf_types import Types, fitting
from edgeseek.export.moments import estimated_importance
from edgeseek.export.new_file import NewFile
from edgeseek.export.source import Constant, ModelSource, SourceTensor, open_source
from edgeseek.package.files import Files, OsFiles
from edgeseek.quantize.report import SquareSums
from edgeseek.quantize.rounding import Importance, LeastError, Rounding

#: Called with (bytes written, bytes in all).
Progress = Callable[[int, int], None]

_MAX_THREADS = 8


@dataclass(frozen=True)
class WrittenTensor:
    """`wanted` is what `types` asked for, `dtype` what was written; `kept` says that no value changed."""

    name: str
    gguf_name: str
    shape: tuple[int, ...]
    wanted: str
    dtype: str
    size: int
    kept: bool
    #: What rounding did; both sums are 0 where the values were kept.
    sums: SquareSums


@dataclass(frozen=True)
class GgufReport:
    """The file and its tensors, in order."""

    path: Path
    size: int
    tensors: tuple[WrittenTensor, ...]

    @property
    def narrowed(self) -> tuple[WrittenTensor, ...]:
        """Tensors whose columns did not fill the blocks of the type that was asked for."""
        return tuple(tensor for tensor in self.tensors if tensor.dtype != tensor.wanted)

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of a matrix's weight, on average."""
        matrices = [tensor for tensor in self.tensors if len(tensor.shape) == 2]
        weights = sum(tensor.shape[0] * tensor.shape[1] for tensor in matrices)
        return 8 * sum(tensor.size for tensor in matrices) / max(1, weights)


def write_gguf(
    source: Path | ModelSource,
    output: Path,
    *,
    types: Types,
    importance: Importance | None = None,
    rounding: Rounding | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    force: bool = False,
    files: Files | None = None,
) -> GgufReport:
    """Write `source` (a package, a Hugging Face folder, a GGUF, or an opened one) as the file `output`.

    `types` chooses a type for each matrix by package name and (rows, columns); where the columns do not
    fill its blocks, `gguf_types.fitting` replaces it and the report says so. Vectors are F32. `importance`
    gives a matrix's weights for the squared error of each input column, [columns], usually the mean square
    of what calibration saw there; without it they are estimated from the weights (`moments`). `rounding` is
    another method than the least error with these weights. An existing file is replaced only with `force`.
    `threads` bounds the threads (default: one for each processor).

    Raises CheckpointError or PackageError for a source that cannot be read or an architecture that cannot
    be written, TokenizerError for a tokenizer that GGUF cannot hold, StorageError for what the disk refuses;
    nothing is left behind then, nor when it is interrupted.
    """
    with ExitStack() as stack:
        opened = stack.enter_context(open_source(source)) if isinstance(source, Path) else source
        outline = gguf_outline(opened.config)
        plans = _plan(opened, outline, types)
        if rounding is None:
            rounding = LeastError(importance or _estimate(opened, plans))
        sizes: dict[str, int] = {}
        for plan in plans:
            sizes[plan.info.dtype] = sizes.get(plan.info.dtype, 0) + plan.info.size
        start = header(metadata_of(opened, outline, sizes), [plan.info for plan in plans])
        total = len(start) + sum(plan.info.size + padding(plan.info.size) for plan in plans)
        file = stack.enter_context(NewFile(output, total, "the GGUF", files or OsFiles(), force=force))
        pool = stack.enter_context(ThreadPoolExecutor(_threads(threads), "gguf"))
        file.write(start)
        written = _write(file, plans, rounding, pool, len(start), total, progress)
        file.finish()
    return GgufReport(output, total, tuple(written))


def _estimate(source: ModelSource, plans: Sequence[Plan]) -> Importance | None:
    return estimated_importance(source).get if any(plan.rounded for plan in plans) else None


def _plan(source: ModelSource, outline: GgufOutline, types: Types) -> list[Plan]:
    plans = [
        Plan(name, TensorInfo(name, "F32", vector.shape), "F32", Constant(vector), 0)
        for name, vector in outline.factors.items()
    ]
    missing = set(source.tensors) - {rule.name for rule in outline.rules}
    if missing:
        raise UnsupportedCheckpointError(
            f"{source.name}: GGUF has no name for {', '.join(sorted(missing)[:5])}; it cannot be written"
        )
    plans += [
        _plan_tensor(rule, source.tensors[rule.name], types)
        for rule in outline.rules
        if rule.name in source.tensors
    ]
    return plans


def _plan_tensor(rule: TensorRule, tensor: SourceTensor, types: Types) -> Plan:
    if len(rule.shape) == 1:
        info = TensorInfo(rule.source, "F32", rule.shape)
        return Plan(rule.name, info, "F32", tensor, rule.unpermute_heads)
    wanted = types(rule.name, rule.shape)
    info = TensorInfo(rule.source, fitting(wanted, rule.shape[1]), rule.shape)
    return Plan(rule.name, info, wanted, tensor, rule.unpermute_heads)


def _write(
    file: NewFile,
    plans: Sequence[Plan],
    rounding: Rounding,
    pool: Executor,
    done: int,
    total: int,
    progress: Progress | None,
) -> list[WrittenTensor]:
    written = []
    pieces = stream(plans, rounding, pool)
    for plan in plans:
        sums = SquareSums()
        for piece in pieces:
            file.write(np.ascontiguousarray(piece.data).reshape(-1).data)
            sums += piece.sums
            done += piece.data.size
            if progress is not None:
                progress(done, total)
            if piece.last:
                break
        gap = padding(plan.info.size)
        file.write(bytes(gap))
        done += gap
        info = plan.info
        written.append(
            WrittenTensor(
                plan.name, info.name, info.shape, plan.wanted, info.dtype, info.size, plan.kept, sums
            )
        )
    return written


def _threads(threads: int | None) -> int:
    return min(threads or len(os.sched_getaffinity(0)), _MAX_THREADS)
