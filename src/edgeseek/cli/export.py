"""`edgeseek export`: write a model as a file of another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeseek.cli import options
from edgeseek.cli.progress import Progress
from edgeseek.cli.services import services_of
from edgeseek.cli.text import size
from edgeseek.errors import UsageError


def export(
    context: typer.Context,
    source: options.Model,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The .onnx file, or a folder for a model.onnx; the other files come to lie beside it.",
        ),
    ],
    format: Annotated[  # noqa: A002  # the option's name
        str, typer.Option("--format", metavar="onnx", help="What to write.")
    ] = "onnx",
    quantize: Annotated[
        str,
        typer.Option(
            "--quantize",
            metavar="int4|f16|f32",
            help="int4 and f16 use ONNX Runtime's own operators, f32 only those of the ONNX standard.",
        ),
    ] = "int4",
    max_seq_len: Annotated[
        int | None,
        typer.Option(
            "--max-seq-len",
            metavar="N",
            min=1,
            help="Longest sequence, prompt and answer together.",
            show_default="the model's, 8192 at most",
        ),
    ] = None,
    opset: Annotated[int, typer.Option("--opset", metavar="N", help="ONNX operator set, from 18.")] = 18,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write a model for another runtime: one ONNX graph that starts with an empty past or goes on from one.

    Beside FILE come its weights (FILE.data), the tokenizer and chat template, and the genai_config.json that
    onnxruntime-genai reads. Run it with: edgeseek run FOLDER --backend onnx. Needs: pip install
    'edgeseek[onnx]'.
    """
    if format != "onnx":
        raise UsageError(f"format {format!r} cannot be exported to; 'onnx' can")
    from edgeseek.export.onnx import require_onnx, write_onnx

    require_onnx()
    services = services_of(context)
    store = services.open_store(services.settings)
    with Progress(services.terminal) as progress, store.checkpoint(source, progress=progress) as path:
        report = write_onnx(
            path,
            output,
            precision=quantize,
            max_positions=max_seq_len,
            opset=opset,
            force=force,
            progress=lambda done, total: progress("exporting", done, total),
        )
    outcome = f"{report.precision}, up to {report.max_positions} tokens"
    if report.rounded:
        outcome += f", {report.rounded} of {len(report.matrices)} matrices rounded"
    services.terminal.line(f"{report.graph} ({size(report.size)}): {outcome}")
