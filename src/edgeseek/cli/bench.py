"""`edgeseek bench`: how fast a model runs here, and how close that is to what the machine allows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeseek.cli import EXIT_INTERRUPTED, options
from edgeseek.cli.progress import Progress
from edgeseek.cli.services import Services, services_of
from edgeseek.cli.terminal import Terminal
from edgeseek.cli.text import size
from edgeseek.errors import ContextTooLongError, DoesNotFitError

if TYPE_CHECKING:
    from rich.table import Table

    from edgeseek.bench import Plan, Report
    from edgeseek.llm import LLM


def bench(
    context: typer.Context,
    model: options.Model = options.DEFAULT_MODEL,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", metavar="N", min=1, max=16, help="Measure N streams only.", show_default="1 to 16"
        ),
    ] = None,
    seq: Annotated[
        int | None,
        typer.Option(
            "--seq",
            metavar="N",
            min=1,
            help="Measure a prompt and a context of N tokens only.",
            show_default="128 to 8192",
        ),
    ] = None,
    threads: options.Threads = None,
    scheme: options.Scheme = None,
    kv: options.Kv = "f16",
    repeat: Annotated[
        int, typer.Option("--repeat", metavar="N", min=1, help="Runs of which the median counts.")
    ] = 3,
    sustained: Annotated[
        float, typer.Option("--sustained", metavar="MIN", min=0, help="Also decode for MIN minutes.")
    ] = 0.0,
    no_starts: Annotated[
        bool, typer.Option("--no-starts", help="Leave out the starts of fresh processes.")
    ] = False,
    as_object: options.Json = False,
    devices_table: Annotated[
        bool, typer.Option("--devices-table", help="Print one row to compare boards with.")
    ] = False,
) -> None:
    """Measure how fast a model runs here, and how close that is to the machine's limits.

    Decoding is limited by memory bandwidth, prompts by arithmetic; both limits are measured before and after
    the model, with the same threads. Run it on an idle machine. Ctrl-C ends it with what was measured so far.
    """
    from edgeseek.bench import run_suite
    from edgeseek.memory.planner import largest_context

    services = services_of(context)
    plan = _plan(batch, seq, repeat, sustained, starts=not (no_starts or devices_table), short=devices_table)
    with Progress(services.terminal) as progress:
        llm = _load(services, model, plan, progress, scheme=scheme, threads=threads, kv=kv)
    try:
        with Progress(services.terminal, counts_tokens=True) as progress:
            report = run_suite(
                llm,
                plan,
                services.settings,
                largest_context=largest_context(llm.config, llm.plan),
                progress=progress.step,
            )
        # Closing waits for the step that runs; a second Ctrl-C during that loses no figure.
        _print(report, services.terminal, as_object=as_object, devices_table=devices_table)
    finally:
        llm.close()
    if report.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def _print(report: Report, terminal: Terminal, *, as_object: bool, devices_table: bool) -> None:
    if as_object:
        terminal.line(json.dumps(report.as_json(), ensure_ascii=False))
    elif devices_table:
        for line in devices_rows(report):
            terminal.line(line)
    else:
        show(report, terminal)
    if report.memory_is_low:
        terminal.note(
            f"memory was short: only {size(report.least_available or 0)} were available at the worst moment; "
            "below 800 MB the kernel begins to drop the weights' pages, and speeds fall"
        )
    if report.interrupted:
        terminal.note("interrupted; the figures above are what was measured until then")


def _plan(
    batch: int | None, seq: int | None, repeat: int, sustained: float, *, starts: bool, short: bool
) -> Plan:
    from edgeseek.bench import Plan

    if short:
        return Plan(prefill=(), decode=(seq or 128,), streams=(), repeat=repeat, roofline=False, starts=False)
    plan = Plan(repeat=repeat, starts=starts, sustained_minutes=sustained)
    return Plan(
        prefill=plan.prefill if seq is None else (seq,),
        decode=plan.decode if seq is None else (seq,),
        streams=plan.streams if batch is None else (batch,),
        repeat=repeat,
        starts=starts,
        sustained_minutes=sustained,
    )


def _load(services: Services, model: str, plan: Plan, progress: Progress, **options: Any) -> LLM:
    """The model with room for the plan, or for as much of it as fits."""

    def load(context: int | None) -> LLM:
        return services.load(
            model,
            context=context,
            settings=services.settings,
            progress=progress,
            report=progress.note,
            **options,
        )

    try:
        return load(plan.context)
    except (DoesNotFitError, ContextTooLongError):
        return load(None)


def show(report: Report, terminal: Terminal) -> None:
    """Tables on stdout, as wide as the terminal."""
    from rich.console import Console

    console = Console(file=terminal.stdout, highlight=False)
    if not terminal.stdout_is_terminal:
        console = Console(file=terminal.stdout, highlight=False, width=100)
    console.print(f"{report.device.name} · {report.model}", markup=False)
    console.print(f"{report.threads} threads, {report.isa}", markup=False)
    roofline = report.roofline
    if roofline is not None:
        console.print(
            f"limits: memory {roofline.bandwidth / 1e9:.1f} GB/s (unaligned loads "
            f"{roofline.unaligned_bandwidth / 1e9:.1f}), int8 {roofline.int8_peak / 1e9:.0f} GMAC/s"
        )
    if report.rows:
        console.print(_speeds(report))
    for line in report.growth():
        console.print(f"growth: {line}")
    if report.starts:
        console.print(_starts(report))
    if report.memory is not None:
        memory = report.memory
        console.print(
            f"memory: peak {size(memory.peak)}; now {size(memory.anonymous)} own, {size(memory.file)} files"
        )
    if report.least_available is not None:
        console.print(f"least memory available meanwhile: {size(report.least_available)}")
    console.print(f"largest context that fits: {report.largest_context}")
    if report.sustained is not None:
        console.print(_sustained(report))
    for line in report.skipped:
        console.print(f"left out: {line}", markup=False)


def _speeds(report: Report) -> Table:
    from rich.table import Table

    table = Table("workload", title="speed", title_justify="left")
    for name in ("tokens/s", "ms per step", "of the limit"):
        table.add_column(name, justify="right")
    table.add_column("limit")
    for row in report.rows:
        share = "" if report.roofline is None else f"{row.efficiency(report.roofline):.0%}"
        table.add_row(row.label, f"{row.tokens_per_s:.1f}", f"{row.step_s * 1e3:.1f}", share, row.limit)
    return table


def _starts(report: Report) -> Table:
    from rich.table import Table

    table = Table("start to first byte", title_justify="left")
    table.add_column("seconds", justify="right")
    for name, seconds in report.starts.items():
        table.add_row(name, f"{seconds:.2f}")
    return table


def _sustained(report: Report) -> Table:
    from rich.table import Table

    table = Table("minutes", title_justify="left")
    for name in ("tokens/s", "clock", "temperature"):
        table.add_column(name, justify="right")
    found = report.sustained
    if found is None:
        return table
    for s in found.samples:
        clock = "not readable here" if s.clock_mhz is None else f"{s.clock_mhz:.0f} MHz"
        warmth = "not readable here" if s.temperature_c is None else f"{s.temperature_c:.0f} °C"
        table.add_row(f"{s.seconds / 60:.1f}", f"{s.tokens_per_s:.1f}", clock, warmth)
    table.caption = f"sustained {found.sustained:.1f} of peak {found.peak:.1f} tokens/s: {found.share:.0%}"
    return table


def devices_rows(report: Report) -> list[str]:
    """Head and the one row of Markdown that people compare boards with."""
    step = report.rows[0].step_s * 1e3 if report.rows else float("nan")
    peak = report.memory.peak / 1e6 if report.memory else float("nan")
    return [
        "| device | model | ms/token | peak MB | largest context that fits |",
        "|---|---|---:|---:|---:|",
        f"| {report.device.name} | {report.model} | {step:.2f} | {peak:.0f} | {report.largest_context} |",
    ]
