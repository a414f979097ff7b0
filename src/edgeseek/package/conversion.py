"""Converts a checkpoint to a package: plan, stream in tiles of rows, write atomically.

The one place that joins checkpoints, architectures, quantize and the writer. Knows nothing of how a
tokenizer is built; its file is given.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from edgeseek.architectures import ModelConfig, ignored_tensors, parse_config, tensor_rules
from edgeseek.checkpoints.base import Checkpoint
from edgeseek.errors import UnsupportedCheckpointError
from edgeseek.package.files import Files, OsFiles
from edgeseek.package.manifest import GENERATION_NAME, TEMPLATE_NAME, TOKENIZER_NAME, Manifest, TensorRecord
from edgeseek.package.pieces import Bytes, Piece, stream
from edgeseek.package.plan import PlannedTensor, container_for, plan_tensors
from edgeseek.package.summary import ConversionReport, TensorOutcome
from edgeseek.package.writer import PackageWriter
from edgeseek.quantize.report import SquareSums
from edgeseek.quantize.schemes import Scheme
from edgeseek.settings import Settings

#: Called with (weight bytes done, weight bytes in all).
Progress = Callable[[int, int], None]

#: What the core takes as dimensions of an attention head (native/src/model.cpp).
HEAD_DIM_UNIT, MAX_HEAD_DIM = 16, 256
#: More threads than this wait for the disk and only take memory.
MAX_THREADS = 4


def convert(
    checkpoint: Checkpoint,
    target: Path,
    *,
    name: str,
    tokenizer_json: bytes,
    chat_template: str | None,
    generation_config: Mapping[str, Any],
    scheme: Scheme | None = None,
    progress: Progress | None = None,
    settings: Settings | None = None,
    files: Files | None = None,
) -> ConversionReport:
    """Write the package of `checkpoint` as the folder `target`, which must not exist yet.

    `scheme` None keeps a quantization that the checkpoint has and rounds to q8 otherwise; see
    `plan_tensors`. `settings.threads` bounds the threads. Raises CheckpointError (unsupported, missing
    or malformed), StorageError (no space, no permission, an existing target), and leaves nothing behind.
    """
    config = parse_config(checkpoint)
    _refuse_unrunnable(config, name)
    rules = tensor_rules(config, checkpoint)
    plans = plan_tensors(config, rules, checkpoint, scheme)
    container = container_for(plans)
    texts = {
        TOKENIZER_NAME: tokenizer_json,
        GENERATION_NAME: (json.dumps(dict(generation_config), indent=1) + "\n").encode(),
    }
    if chat_template is not None:
        texts[TEMPLATE_NAME] = chat_template.encode()
    threads = conversion_threads(settings)
    with PackageWriter(target, container, files or OsFiles()) as writer:
        with ThreadPoolExecutor(threads, "convert") as pool:
            records, outcomes = _write_tensors(writer, plans, stream(plans, pool, threads + 1), progress)
        manifest = Manifest(
            name=name,
            config=config,
            tensors=records,
            files={file: hashlib.sha256(data).hexdigest() for file, data in texts.items()},
            source_digest=checkpoint.digest(),
        )
        writer.finish(manifest.to_bytes(), texts)
    ignored = ignored_tensors(checkpoint, rules)
    return ConversionReport(target, container.file_bytes, tuple(outcomes), ignored)


def _refuse_unrunnable(config: ModelConfig, name: str) -> None:
    """Raise UnsupportedCheckpointError for sizes that the core does not take (native/src/model.cpp)."""
    latent = config.latent
    if latent is not None:
        sizes = (latent.rank, latent.plain_dim, latent.rotated_dim, latent.value_dim)
        if any(size % HEAD_DIM_UNIT for size in sizes):
            raise UnsupportedCheckpointError(
                f"{name}: latent attention of {', '.join(map(str, sizes))} dimensions cannot be run; "
                f"the core takes multiples of {HEAD_DIM_UNIT}"
            )
        return
    if config.head_dim % HEAD_DIM_UNIT or config.head_dim > MAX_HEAD_DIM:
        raise UnsupportedCheckpointError(
            f"{name}: attention heads of {config.head_dim} dimensions cannot be run; the core takes "
            f"multiples of {HEAD_DIM_UNIT} up to {MAX_HEAD_DIM}"
        )


def _write_tensors(
    writer: PackageWriter,
    plans: Sequence[PlannedTensor],
    pieces: Iterator[Piece],
    progress: Progress | None,
) -> tuple[dict[str, TensorRecord], list[TensorOutcome]]:
    metered = _metered(pieces, sum(plan.size for plan in plans), progress)
    records = {}
    outcomes = []
    for plan in plans:
        parts: list[SquareSums] = []
        digest = writer.write_tensor(_next_tensor(metered, parts))
        sums = sum(parts, SquareSums())
        rule = plan.rule
        records[rule.name] = TensorRecord(
            scheme=plan.scheme,
            layout=plan.layout,
            shape=rule.shape,
            size=plan.size,
            sha256=digest,
            source_name=rule.source,
            source_dtype=plan.source.dtype,
            exact=plan.exact,
            error=None if plan.exact else sums.relative_rms,
        )
        outcomes.append(
            TensorOutcome(
                rule.name, plan.action, plan.source.dtype, plan.scheme, len(rule.shape) == 2, plan.exact, sums
            )
        )
    return records, outcomes


def _next_tensor(pieces: Iterator[Piece], sums: list[SquareSums]) -> Iterator[Bytes]:
    """Bytes up to the end of a tensor; what rounding did is added to `sums`."""
    for piece in pieces:
        sums.append(piece.sums)
        yield piece.data
        if piece.last:
            return


def _metered(pieces: Iterator[Piece], total: int, progress: Progress | None) -> Iterator[Piece]:
    """The same pieces; `progress` hears of each as it is taken up."""
    done = 0
    for piece in pieces:
        done += piece.data.size
        if progress is not None:
            progress(done, total)
        yield piece


def conversion_threads(settings: Settings | None) -> int:
    """Threads that a conversion works on: what `settings` forces or this process may use, four at most."""
    if settings is not None and settings.threads is not None:
        return min(settings.threads, MAX_THREADS)
    return min(len(os.sched_getaffinity(0)), MAX_THREADS)
