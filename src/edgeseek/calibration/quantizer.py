"""Quantizes a model: joins source, recipe, method and calibration, writes the output, measures what it cost.

Calibration and measurement run the source on our own engine, as a package of its floats in a temporary
folder beside the output, which is removed whatever happens.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from edgeseek.architectures import gguf_outline
from edgeseek.calibration.divergence import divergence
from edgeseek.calibration.hessians import HessianRounds, largest_need
from edgeseek.calibration.quantization import Job, Outcome, TensorLine
from edgeseek.calibration.scaling import find_scales
from edgeseek.calibration.statistics import WINDOW, Statistics, calibration_tokens, gather
from edgeseek.checkpoints import open_checkpoint
from edgeseek.errors import DoesNotFitError, StorageError, UsageError
from edgeseek.export.gguf import write_gguf
from edgeseek.export.gguf_types import GgufType
from edgeseek.export.moments import estimated_importance
from edgeseek.export.package import check_target, write_package
from edgeseek.export.scaled import ScaledSource
from edgeseek.export.source import ModelSource, has_codes, open_source
from edgeseek.llm import LLM
from edgeseek.memory.limits import memory_available
from edgeseek.package import convert, is_package
from edgeseek.package.files import OsFiles, make_folders
from edgeseek.package.writer import own_folder, remove_abandoned, storage_error
from edgeseek.quantize.gptq import Gptq
from edgeseek.quantize.recipe import INT4_BITS, Recipe, fitting, int4_recipe
from edgeseek.quantize.rounding import LeastError, Rounding
from edgeseek.quantize.schemes import SCHEMES, Scheme
from edgeseek.settings import Settings
from edgeseek.tokenizer import build_tokenizer_json, chat_template_of, generation_defaults

#: Called with (what is done, steps done, steps in all).
Progress = Callable[[str, int, int], None]

#: Share of the available memory that Hessians may take together, and at most.
_HESSIAN_SHARE, _HESSIAN_MOST = 4, 2 << 30
#: Share of the available memory up to which a model is calibrated with its own floats instead of 8 bits.
_FLOAT_SHARE = 2
#: Windows that the output is measured on.
MEASURED_WINDOWS = 64
#: Characters a token, at most on average: what lies beyond is not tokenized.
MEASURED_CHARACTERS = 16
_GGUF_TYPES: Mapping[Scheme, GgufType] = {
    "f32": "F32", "f16": "F16", "q8": "Q8_0", "q4": "Q4_0", "q4z": "Q4_1", "q5": "Q5_0", "q5z": "Q5_1",
    "q4k": "Q4_K", "q5k": "Q5_K", "q6k": "Q6_K",
}  # fmt: skip


def quantize(
    job: Job,
    settings: Settings,
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Outcome:
    """Do `job`. Leaves nothing behind when it fails or is interrupted.

    Raises UsageError for a job that contradicts itself, a recipe that matches nothing and a text that is
    too short, DoesNotFitError where gptq's Hessians do not fit, StorageError for the output's place, and what
    reading the source raises.
    """
    progress = progress or (lambda *_: None)
    say = say or (lambda _: None)
    _check(job)
    with ExitStack() as stack:
        source = stack.enter_context(open_source(job.source))
        _check_family(job, source)
        chosen = _chosen(job, source)
        run = _Run(job, settings, source, chosen, progress, say, stack)
        return run.whole()


def _check(job: Job) -> None:
    if job.method != "rtn" and job.text is None:
        raise UsageError(f"{job.method} needs to see the model's inputs; give a text with --calibrate")
    if job.bits is not None and (job.recipe is not None or job.format == "onnx"):
        raise UsageError("bits are for int4 in a package or a GGUF; other schemes have theirs")
    source, output = job.source.resolve(), job.output.resolve()
    if output == source or source in output.parents or output in source.parents:
        raise UsageError(
            f"the output {job.output} and the source {job.source} lie in each other; choose another"
        )
    if job.format == "package":
        check_target(job.output, force=job.force)
    elif job.output.exists() and not job.force:
        raise StorageError(f"{job.output} exists already; choose another output, or replace it with --force")


def _check_family(job: Job, source: ModelSource) -> None:
    """Raise UnsupportedCheckpointError, before any work, for a model that the format has no form for."""
    if job.format == "gguf":
        gguf_outline(source.config)
    elif job.format == "onnx":
        from edgeseek.export.onnx import check_family

        check_family(source.config, source.name)


def _chosen(job: Job, source: ModelSource) -> dict[str, tuple[Scheme, Scheme]]:
    """For each matrix the scheme that the recipe wants and the one its columns allow."""
    shapes = {
        name: tensor.shape
        for name, tensor in source.tensors.items()
        if len(tensor.shape) == 2 and not name.endswith(".router.weight")
    }
    recipe = job.recipe or int4_recipe(shapes, job.bits or INT4_BITS)
    if unmatched := recipe.unmatched([*shapes]):
        raise UsageError(
            f"the recipe's {unmatched[0]!r} matches no matrix of {source.name}; they are called like "
            f"{', '.join([*shapes][1:8])}"
        )
    if job.format == "onnx":
        return _onnx_schemes(job, [*shapes])
    wanted = {name: recipe.scheme(name) for name in shapes}
    return {name: (scheme, fitting(scheme, shapes[name][1])) for name, scheme in wanted.items()}


def _onnx_schemes(job: Job, names: Sequence[str]) -> dict[str, tuple[Scheme, Scheme]]:
    """What `MatMulNBits` can hold: q4 with the tables in q8, or floats."""
    if job.recipe is not None and job.recipe != Recipe(job.recipe.default, job.recipe.default):
        raise UsageError("ONNX's operators cannot hold a recipe's mixture; give int4, f16 or f32")
    recipe = "int4" if job.recipe is None else job.recipe.default
    floats: tuple[Scheme, ...] = ("f16", "f32")
    for scheme in floats:
        if recipe == scheme:
            return dict.fromkeys(names, (scheme, scheme))
    if recipe not in ("int4", "q4"):
        raise UsageError(f"ONNX's operators hold int4, f16 and f32 weights, not {recipe!r}")
    tables = ("embed.weight", "head.weight")
    schemes: dict[str, Scheme] = {name: "q8" if name in tables else "q4" for name in names}
    return {name: (scheme, scheme) for name, scheme in schemes.items()}


class _Run:
    """One job, with what its steps share."""

    def __init__(
        self,
        job: Job,
        settings: Settings,
        source: ModelSource,
        chosen: Mapping[str, tuple[Scheme, Scheme]],
        progress: Progress,
        say: Callable[[str], None],
        stack: ExitStack,
    ) -> None:
        self._job, self._settings, self._source, self._chosen = job, settings, source, chosen
        self._progress, self._say, self._stack = progress, say, stack
        self._loaded: LLM | None = None
        self._folder: Path | None = None
        self._outcome = Outcome(
            source.name,
            job.output,
            job.format,
            "int4" if job.recipe is None else job.recipe.name,
            job.method,
            observer="minmax" if job.percentile is None else f"percentile {job.percentile:g}",
            source_size=_size(job.source),
            ignored=source.ignored,
        )

    def whole(self) -> Outcome:
        """Calibrate, write, measure."""
        source, rounding = self._method()
        self._write(source, rounding)
        self._outcome.size = _size(self._job.output)
        if isinstance(rounding, Gptq):
            self._outcome.without_statistics = tuple(rounding.without)
        if self._job.measure is not None:
            self._measure(self._job.measure)
        return self._outcome

    def _method(self) -> tuple[ModelSource, Rounding]:
        job, source = self._job, self._source
        if job.text is None:
            return source, LeastError(estimated_importance(source).get if self._rounded() else None)
        llm = self._reference()
        windows = calibration_tokens(llm, job.text, job.tokens)
        statistics = gather(
            llm,
            windows,
            sample=job.method == "awq",
            percentile=job.percentile,
            progress=self._progress,
        )
        self._outcome.tokens = statistics.tokens
        plain = LeastError(statistics.importance)
        if job.method == "rtn":
            return source, plain
        if job.method == "awq":
            scales = find_scales(
                source,
                statistics,
                self._scheme,
                lambda done, total: self._progress("searching scales", done, total),
            )
            scaled = ScaledSource(source, scales.rows, scales.columns)
            return scaled, LeastError(lambda name: scales.importance(statistics, name))
        rounded = self._rounded()
        budget = self._hessian_budget(llm, rounded, statistics)
        hessians = HessianRounds(
            llm, windows, statistics, rounded, budget, percentile=job.percentile, progress=self._progress
        )
        return source, Gptq(hessians, plain)

    def _hessian_budget(self, llm: LLM, names: Sequence[str], statistics: Statistics) -> int:
        available = memory_available(self._settings).available
        need, columns = largest_need(llm, names, statistics)
        self._say(f"gptq needs {need / 1e6:,.0f} MB for its largest Hessian, of {columns} inputs")
        if need > available:
            raise DoesNotFitError(
                f"gptq needs {need / 1e6:,.0f} MB for a Hessian of {columns} inputs and only "
                f"{available / 1e6:,.0f} MB are available; use --method awq, which needs none",
                needed=need,
                available=available,
            )
        return max(need, min(available // _HESSIAN_SHARE, _HESSIAN_MOST))

    def _rounded(self) -> list[str]:
        """Matrices that become codes."""
        return [name for name, (_, scheme) in self._chosen.items() if SCHEMES[scheme].code_bits]

    def _scheme(self, name: str, _shape: tuple[int, ...] = ()) -> Scheme:
        chosen = self._chosen.get(name)
        return "f32" if chosen is None else chosen[1]

    def _write(self, source: ModelSource, rounding: Rounding) -> None:
        job = self._job

        def written(done: int, total: int) -> None:
            self._progress("quantizing", done, total)

        if job.format == "gguf":
            report = write_gguf(
                source,
                job.output,
                types=lambda name, _: _GGUF_TYPES[self._scheme(name)],
                rounding=rounding,
                progress=written,
                threads=job.threads or self._settings.threads,
                force=job.force,
            )
            lines = [(t.name, t.shape, t.dtype, t.size, t.kept, t.sums.relative_rms) for t in report.tensors]
            self._take(lines)
            return
        target = job.output if job.format == "package" else self._scratch() / "quantized"
        package = write_package(
            source,
            target,
            name=job.output.name if job.format == "package" else source.name,
            schemes=self._scheme,
            rounding=rounding,
            calibration=self._record(),
            progress=written,
            threads=job.threads or self._settings.threads,
            force=job.force,
        )
        self._take([(t.name, t.shape, t.scheme, t.size, t.kept, t.error) for t in package.tensors])
        if job.format == "onnx":
            self._export(target)

    def _export(self, package: Path) -> None:
        from edgeseek.export.onnx import write_onnx

        recipe = self._outcome.recipe
        write_onnx(
            package,
            self._job.output,
            precision=recipe if recipe in ("f16", "f32") else "int4",
            max_positions=self._job.max_positions,
            force=self._job.force,
            progress=lambda done, total: self._progress("exporting", done, total),
        )

    def _take(self, lines: Sequence[tuple[str, tuple[int, ...], str, int, bool, float]]) -> None:
        for name, shape, stored, size, kept, error in lines:
            if name in self._chosen:
                wanted, fitted = self._chosen[name]
                # A GGUF's types have other names than our schemes.
                asked = stored if wanted == fitted else wanted
                dtype = self._source.tensors[name].origin[1]
                self._outcome.tensors.append(TensorLine(name, shape, dtype, asked, stored, size, kept, error))

    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"recipe": self._outcome.recipe, "method": self._job.method}
        if self._job.text is not None:
            record["tokens"] = self._outcome.tokens
            record["observer"] = self._outcome.observer
            record["text_sha256"] = hashlib.sha256(self._job.text.encode()).hexdigest()
        return record

    def _measure(self, text: str) -> None:
        reference = self._reference()
        ids = reference.tokenizer.encode(text[: MEASURED_WINDOWS * WINDOW * MEASURED_CHARACTERS])
        with self._load(self._runnable()) as model:
            self._outcome.divergence = divergence(
                model,
                reference,
                ids,
                min(WINDOW, reference.context),
                limit=MEASURED_WINDOWS,
                progress=lambda done, total: self._progress("measuring", done, total),
            )

    def _runnable(self) -> Path:
        """The output as something that can be loaded."""
        if self._job.format != "gguf":
            return self._job.output
        return self._imported(self._job.output, "measured", None)

    def _reference(self) -> LLM:
        """The source, running; loaded once."""
        if self._loaded is None:
            path = self._job.source
            if not is_package(path):
                scheme: Scheme | None = None
                weights = sum(math.prod(tensor.shape) for tensor in self._source.tensors.values())
                quantized = any(has_codes(tensor.scheme) for tensor in self._source.tensors.values())
                room = memory_available(self._settings).available // _FLOAT_SHARE
                if not quantized and 4 * weights <= room:
                    scheme = "f32"
                elif not quantized:
                    self._outcome.reference = "rounded to 8 bits, since its floats do not fit the memory"
                path = self._imported(path, "reference", scheme)
            self._loaded = self._load(path)
            self._stack.callback(self._loaded.close)
        return self._loaded

    def _imported(self, path: Path, name: str, scheme: Scheme | None) -> Path:
        """A package of the checkpoint at `path`, in the scratch folder."""
        target = self._scratch() / name
        with open_checkpoint(path) as checkpoint:
            assets = checkpoint.text_assets
            convert(
                checkpoint,
                target,
                name=self._source.name,
                tokenizer_json=build_tokenizer_json(assets),
                chat_template=chat_template_of(assets),
                generation_config=generation_defaults(assets),
                scheme=scheme,
                progress=lambda done, total: self._progress("reading the source", done, total),
                settings=self._settings,
            )
        return target

    def _load(self, path: Path) -> LLM:
        context = min(WINDOW, self._source.config.max_context)
        if self._job.format == "onnx":
            # One length for both, since they are compared in windows of it.
            context = min(context, self._job.max_positions or context)
        return LLM.load(path, context=context, threads=self._job.threads, settings=self._settings)

    def _scratch(self) -> Path:
        """A folder beside the output that is removed at the end, by the next writer if we are killed."""
        if self._folder is None:
            files = OsFiles()
            target = self._job.output.absolute()
            make_folders(target.parent, files)
            remove_abandoned(target.parent, files)
            try:
                self._folder, unlock = own_folder(target, files)
            except OSError as error:
                raise storage_error(error, target) from error
            self._stack.callback(unlock)
            self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder


def _size(path: Path) -> int:
    """Bytes of a file, or of the files in a folder."""
    if path.is_file():
        beside = path.with_name(path.name + ".data")
        return path.stat().st_size + (
            beside.stat().st_size if path.suffix == ".onnx" and beside.exists() else 0
        )
    return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
