"""Writes a package from any source with a scheme of its own for each matrix and any method of rounding.

What the source stores in the wanted scheme is kept to the bit. Streams pieces of rows; the folder appears
whole or not at all. An import without choices (`package.convert`) needs none of this.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgeseek.errors import StorageError, UnsupportedCheckpointError
from edgeseek.export.source import ModelSource, SourceTensor, row_ranges
from edgeseek.package.ahead import in_order
from edgeseek.package.container import lay_out
from edgeseek.package.files import Files, OsFiles
from edgeseek.package.folders import replacement, settle
from edgeseek.package.manifest import (
    GENERATION_NAME,
    MANIFEST_NAME,
    TEMPLATE_NAME,
    TOKENIZER_NAME,
    Manifest,
    TensorRecord,
    layout_for,
)
from edgeseek.package.writer import PackageWriter
from edgeseek.quantize.packing import Blocks, Bytes, pack, values
from edgeseek.quantize.report import SquareSums, square_sums
from edgeseek.quantize.rounding import Rounding, RoundRows
from edgeseek.quantize.rtn import RoundingError, from_floats
from edgeseek.quantize.schemes import SCHEMES, Scheme, interleave, stored_bytes
from edgeseek.tokenizer import build_tokenizer_json, chat_template_of, generation_defaults

#: Called with a matrix's package name and (rows, columns).
Schemes = Callable[[str, tuple[int, ...]], Scheme]
#: Called with (bytes written, bytes in all).
Progress = Callable[[int, int], None]

_MAX_THREADS = 8
#: Weights in a piece that is not rounded.
_KEPT_WEIGHTS = 1 << 16
#: The float types whose values a scheme holds exactly.
_EXACT: Mapping[str, tuple[str, ...]] = {"f32": ("f32", "f16", "bf16"), "f16": ("f16",)}


@dataclass(frozen=True)
class WrittenTensor:
    """What became of a tensor; `kept` says that no value changed."""

    name: str
    shape: tuple[int, ...]
    source_dtype: str
    scheme: str
    size: int
    kept: bool
    sums: SquareSums

    @property
    def error(self) -> float:
        """Relative RMS error of the weights; 0 where they were kept."""
        return self.sums.relative_rms


@dataclass(frozen=True)
class PackageReport:
    """A written package and its tensors, in order."""

    path: Path
    size: int
    tensors: tuple[WrittenTensor, ...]

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of a matrix's weight, on average."""
        matrices = [tensor for tensor in self.tensors if len(tensor.shape) == 2]
        weights = sum(tensor.shape[0] * tensor.shape[1] for tensor in matrices)
        return 8 * sum(tensor.size for tensor in matrices) / max(1, weights)


@dataclass(frozen=True)
class _Plan:
    name: str
    source: SourceTensor
    scheme: Scheme
    layout: str

    @property
    def kept(self) -> bool:
        return self.source.scheme == self.scheme or self.source.scheme in _EXACT.get(self.scheme, ())

    @property
    def size(self) -> int:
        return stored_bytes(self.scheme, self.layout, self.source.shape)


def write_package(
    source: ModelSource,
    output: Path,
    *,
    name: str,
    schemes: Schemes,
    rounding: Rounding,
    calibration: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    force: bool = False,
    files: Files | None = None,
) -> PackageReport:
    """Write `source` as the package `output`, called `name`.

    `schemes` chooses for each matrix; vectors and routers stay f32. `calibration` is recorded. An existing
    package is replaced only with `force`, once the new one is whole. Raises TokenizerError,
    UnsupportedCheckpointError for values that a scheme cannot hold, StorageError; leaves nothing behind
    then, nor when it is interrupted.
    """
    files = files or OsFiles()
    target = output.absolute()
    replaced = check_target(output, force=force, files=files)
    texts = _texts(source)
    plans = [_plan(source, tensor, schemes) for tensor in source.tensors]
    types = {"f16": "F16", "f32": "F32"}
    container = lay_out([(plan.name, types.get(plan.scheme, "U8"), plan.size) for plan in plans])
    workers = min(threads or len(os.sched_getaffinity(0)), _MAX_THREADS)
    with PackageWriter(replacement(target) if replaced else target, container, files) as writer:
        with ThreadPoolExecutor(workers, "quantize") as pool:
            written, records = _write(writer, plans, rounding, pool, workers, progress)
        manifest = Manifest(
            name=name,
            config=source.config,
            tensors=records,
            files={file: hashlib.sha256(data).hexdigest() for file, data in texts.items()},
            source_digest=source.digest(),
            calibration=calibration,
        )
        writer.finish(manifest.to_bytes(), texts)
    if replaced:
        settle(target, files)
    return PackageReport(output, container.file_bytes, tuple(written))


def check_target(output: Path, *, force: bool, files: Files | None = None) -> bool:
    """Whether `output` is a package that `write_package` would replace; ends a replacement that was killed.

    Raises StorageError for one that may not be replaced: without `force`, or because it is no package.
    """
    files, target = files or OsFiles(), output.absolute()
    settle(target, files)
    if not files.exists(target):
        return False
    if not force:
        raise StorageError(f"{output} exists already; choose another output, or replace it with --force")
    if not files.exists(target / MANIFEST_NAME):
        raise StorageError(f"{output} exists and is no package; it is not replaced, choose another output")
    return True


def _texts(source: ModelSource) -> dict[str, bytes]:
    assets = source.text
    texts = {
        TOKENIZER_NAME: build_tokenizer_json(assets),
        GENERATION_NAME: (json.dumps(dict(generation_defaults(assets)), indent=1) + "\n").encode(),
    }
    template = chat_template_of(assets)
    if template is not None:
        texts[TEMPLATE_NAME] = template.encode()
    return texts


def _plan(source: ModelSource, name: str, schemes: Schemes) -> _Plan:
    tensor = source.tensors[name]
    layout = layout_for(name, tensor.shape, source.config)
    plain = layout == "flat" or name.endswith(".router.weight")
    return _Plan(name, tensor, "f32" if plain else schemes(name, tensor.shape), layout)


def _write(
    writer: PackageWriter,
    plans: Sequence[_Plan],
    rounding: Rounding,
    pool: Executor,
    ahead: int,
    progress: Progress | None,
) -> tuple[list[WrittenTensor], dict[str, TensorRecord]]:
    total, done = sum(plan.size for plan in plans), 0
    written, records = [], dict[str, TensorRecord]()
    pieces = in_order(_calls(plans, rounding), pool, ahead)
    for plan in plans:
        parts = list[SquareSums]()

        def tensor(parts: list[SquareSums] = parts) -> Iterator[Bytes]:
            nonlocal done
            for data, sums, last in pieces:
                parts.append(sums)
                done += data.size
                if progress is not None:
                    progress(done, total)
                yield data
                if last:
                    return

        digest = writer.write_tensor(tensor())
        sums = sum(parts, SquareSums())
        origin, dtype = plan.source.origin
        written.append(
            WrittenTensor(plan.name, plan.source.shape, dtype, plan.scheme, plan.size, plan.kept, sums)
        )
        records[plan.name] = TensorRecord(
            scheme=plan.scheme,
            layout=plan.layout,
            shape=plan.source.shape,
            size=plan.size,
            sha256=digest,
            source_name=origin,
            source_dtype=dtype,
            exact=plan.kept or plan.scheme == "f32",
            error=None if plan.kept or plan.scheme == "f32" else sums.relative_rms,
        )
    return written, records


_Piece = tuple[Bytes, SquareSums, bool]


def _calls(plans: Sequence[_Plan], rounding: Rounding) -> Iterator[Callable[[], _Piece]]:
    """What makes the pieces of all tensors, in order."""
    for plan in plans:
        # What a method needs for a matrix may be large, so it is prepared when its turn comes.
        round_rows = _rounder(plan, rounding)
        weights = _KEPT_WEIGHTS if plan.kept else rounding.piece_weights
        for start, stop in row_ranges(plan.source, interleave(plan.layout), weights):
            yield partial(_piece, plan, round_rows, start, stop)


def _rounder(plan: _Plan, rounding: Rounding) -> RoundRows:
    if not SCHEMES[plan.scheme].code_bits or plan.kept or plan.layout == "flat":
        return lambda rows: from_floats(rows, plan.scheme)
    return rounding.prepare(plan.name, plan.source.shape[1], plan.scheme)


def _piece(plan: _Plan, round_rows: RoundRows, start: int, stop: int) -> _Piece:
    try:
        if plan.layout == "flat":
            vector = plan.source.floats(0, 1)[0]
            if not np.isfinite(vector).all():
                raise RoundingError("it holds values that are not finite")
            return np.ascontiguousarray(vector, "<f4").view(np.uint8), SquareSums(), True
        blocks, sums = _rounded(plan, round_rows, start, stop)
    except (RoundingError, ValueError) as error:
        raise UnsupportedCheckpointError(
            f"tensor {plan.source.origin[0]!r} cannot become {plan.scheme}: {error}"
        ) from error
    return pack(blocks, plan.layout), sums, stop == plan.source.shape[0]


def _rounded(plan: _Plan, round_rows: RoundRows, start: int, stop: int) -> tuple[Blocks, SquareSums]:
    if plan.kept and SCHEMES[plan.scheme].code_bits:
        return plan.source.blocks(start, stop), SquareSums()
    original = plan.source.floats(start, stop)
    blocks = round_rows(original)
    return blocks, SquareSums() if plan.kept else square_sums(original, values(blocks))
