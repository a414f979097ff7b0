"""`edgeseek quantize`: fewer bits a weight, with as little lost as the method allows."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from edgeseek.cli import options
from edgeseek.cli.progress import Progress
from edgeseek.cli.services import services_of
from edgeseek.cli.terminal import Terminal
from edgeseek.cli.text import read_text, size
from edgeseek.errors import UsageError

if TYPE_CHECKING:
    from edgeseek.calibration.quantization import Outcome


def quantize(
    context: typer.Context,
    source: options.Model,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PATH", help="The package folder or file to write.")
    ],
    what: Annotated[
        str,
        typer.Option(
            "--quantize",
            metavar="int4|SCHEME|FILE",
            help="int4 mixes schemes for --bits a weight; or one scheme for all matrices (q4 q4z "
            "q5 q5z q8 q4k q5k q6k f16 f32), or a recipe file ending in .toml.",
        ),
    ] = "int4",
    bits: Annotated[
        float | None,
        typer.Option(
            "--bits",
            metavar="N",
            help="For int4: bits a weight on average, at most, from 4.5.",
            show_default="4.6",
        ),
    ] = None,
    format: Annotated[  # noqa: A002  # the option's name
        str, typer.Option("--format", metavar="package|gguf|onnx", help="What to write.")
    ] = "package",
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="rtn|awq|gptq",
            help="How values are rounded; awq and gptq need --calibrate.",
            show_default="gptq with --calibrate, else rtn",
        ),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option("--calibrate", metavar="FILE", help="UTF-8 text of the kind the model will meet."),
    ] = None,
    calibrate_tokens: Annotated[
        int | None,
        typer.Option(
            "--calibrate-tokens",
            metavar="N",
            min=512,
            help="Tokens of it that are used, at most.",
            show_default="32768",
        ),
    ] = None,
    observer: Annotated[
        str,
        typer.Option(
            "--observer",
            metavar="minmax|percentile",
            help="percentile counts inputs beyond --percentile of a column as that.",
        ),
    ] = "minmax",
    percentile: Annotated[
        float | None,
        typer.Option(
            "--percentile",
            metavar="P",
            help="For --observer percentile, 90 to below 100.",
            show_default="99.99",
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text", metavar="FILE", help="Measure perplexity and KL divergence to the source on this text."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write what became of each tensor, as .html or .json."),
    ] = None,
    max_seq_len: Annotated[
        int | None,
        typer.Option("--max-seq-len", metavar="N", min=1, help="ONNX only: the longest sequence."),
    ] = None,
    threads: options.Threads = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an output that is there.")] = False,
) -> None:
    """Quantize a model: from a Hugging Face folder, a name, a GGUF or a package to a package, GGUF or ONNX.

    Without --calibrate the weights alone decide. With a text the model is run on it, and rounding favours
    what its inputs need. Measure on another text than the one calibrated on.
    """
    job = _checked(method, format, observer, calibrate, max_seq_len, report)
    for option, value, of, used in (
        ("--calibrate-tokens", calibrate_tokens, "--calibrate", calibrate is not None),
        ("--percentile", percentile, "--observer percentile", observer == "percentile"),
        ("--bits", bits, "--quantize int4 as a package or GGUF", what == "int4" and format != "onnx"),
    ):
        if value is not None and not used:
            raise UsageError(f"{option} belongs to {of}; without that it does nothing")
    from edgeseek.calibration.quantization import Job
    from edgeseek.calibration.quantization_report import write_report
    from edgeseek.calibration.quantizer import quantize as run
    from edgeseek.calibration.statistics import DEFAULT_PERCENTILE, MAX_TOKENS
    from edgeseek.quantize.recipe import parse_recipe

    if format == "onnx":
        from edgeseek.export.onnx import require_onnx

        require_onnx()
    services = services_of(context)
    recipe = parse_recipe(what)
    calibration = None if calibrate is None else read_text(calibrate, "--calibrate")
    measure = None if text is None else read_text(text, "--text")
    with ExitStack() as stack:
        with Progress(services.terminal) as progress:
            store = services.open_store(services.settings)
            path = stack.enter_context(store.checkpoint(source, progress=progress))
        with Progress(services.terminal, counts_tokens=True) as progress:
            outcome = run(
                Job(
                    source=path,
                    output=output,
                    recipe=recipe,
                    bits=bits,
                    text=calibration,
                    tokens=calibrate_tokens or MAX_TOKENS,
                    percentile=(percentile or DEFAULT_PERCENTILE) if observer == "percentile" else None,
                    measure=measure,
                    max_positions=max_seq_len,
                    threads=threads,
                    force=force,
                    **job,
                ),
                services.settings,
                progress=lambda stage, done, total: progress.step(stage, 100 * done // max(total, 1), 100),
                say=progress.note,
            )
    if report is not None:
        write_report(outcome, report)
    _show(outcome, services.terminal)


def _checked(
    method: str | None,
    format: str,  # noqa: A002
    observer: str,
    calibrate: Path | None,
    max_seq_len: int | None,
    report: Path | None,
) -> dict[str, Any]:
    """The options that name a choice. Raises UsageError naming what there is."""
    from edgeseek.calibration.quantization import Format, Method

    chosen = method or ("rtn" if calibrate is None else "gptq")
    for option, value, known in (
        ("--method", chosen, get_args(Method)),
        ("--format", format, get_args(Format)),
        ("--observer", observer, ("minmax", "percentile")),
    ):
        if value not in known:
            raise UsageError(f"{option} {value!r} is unknown; give {', '.join(known)}")
    if observer == "percentile" and calibrate is None:
        raise UsageError("--observer percentile looks at the model's inputs; give a text with --calibrate")
    if max_seq_len is not None and format != "onnx":
        raise UsageError("--max-seq-len belongs to --format onnx; other formats take the context when run")
    if report is not None and report.suffix not in (".html", ".json"):
        raise UsageError(f"--report {report} ends in neither .html nor .json")
    if report is not None and not report.absolute().parent.is_dir():
        raise UsageError(f"--report {report} lies in a folder that does not exist; make it first")
    return {"method": cast("Any", chosen), "format": cast("Any", format)}


def _show(outcome: Outcome, terminal: Terminal) -> None:
    for line in outcome.narrowed:
        terminal.note(
            f"{line.name}: {line.shape[1]} columns do not fill the blocks of {line.wanted}; "
            f"stored as {line.stored}"
        )
    if outcome.without_statistics:
        first, *more = outcome.without_statistics
        others = f" and {len(more)} more" if more else ""
        terminal.note(f"rounded without seeing inputs (none reached it): {first}{others}")
    if outcome.ignored:
        terminal.note(f"left out, derived or repeated: {', '.join(outcome.ignored[:5])}")
    how = f"{outcome.method} on {outcome.tokens:,} tokens" if outcome.tokens else outcome.method
    kept = sum(line.kept for line in outcome.tensors)
    unchanged = f", {kept} of {len(outcome.tensors)} matrices kept as stored" if kept else ""
    terminal.line(
        f"{outcome.output} ({size(outcome.size)}): {outcome.recipe}, {outcome.bits_per_weight:.2f} bits a "
        f"weight, {how}{unchanged}"
    )
    found = outcome.divergence
    if found is not None:
        terminal.line(
            f"KL divergence {found.mean_kl:.5f} nats a token, perplexity {found.perplexity:.3f} "
            f"(source {found.reference_perplexity:.3f}) over {found.tokens:,} tokens"
        )
        if outcome.reference:
            terminal.note(f"the source was {outcome.reference}")
