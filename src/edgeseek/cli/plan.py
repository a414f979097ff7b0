"""`edgeseek plan`: what a model takes, whether it fits, and what would."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeseek.cli import options
from edgeseek.cli.services import services_of
from edgeseek.cli.terminal import Terminal
from edgeseek.cli.text import columns, size

if TYPE_CHECKING:
    from edgeseek.memory.alternatives import Alternative, Wish
    from edgeseek.memory.planner import MemoryPlan


def plan(
    context: typer.Context,
    model: options.Model,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="NAME",
            help="The machine to plan for: rk3588-8g, orin-nx-16g, rpi5-8g, or this one.",
        ),
    ] = "this",
    budget: options.Budget = None,
    context_tokens: options.Context = None,
    slots: options.Slots = 1,
    kv: options.Kv = "f16",
    scheme: options.Scheme = None,
    threads: options.Threads = None,
    as_object: options.Json = False,
) -> None:
    """Show what a model takes and whether it fits, before it is loaded, imported or downloaded.

    MODEL may also be a config.json, or a folder with nothing else. Of a hub name only the config is
    fetched. Where it does not fit, the nearest things that do are listed, and the exit code is 1.
    """
    from edgeseek.errors import DoesNotFitError
    from edgeseek.memory.alternatives import Wish, alternatives
    from edgeseek.memory.boards import machine_for

    services = services_of(context)
    terminal = services.terminal
    limits, cores = machine_for(device, services.settings)
    footprint = services.open_store(services.settings).footprint(model, scheme=scheme)
    wish = Wish(
        footprint,
        limits,
        threads or cores,
        context=context_tokens,
        slots=slots,
        kv=options.kv_type(kv),
        budget=options.byte_count("--budget", budget),
    )
    refusal: DoesNotFitError | None = None
    others: list[Alternative] = []
    try:
        made = wish.plan()
    except DoesNotFitError as error:
        refusal, made, others = error, wish.unbounded(), alternatives(wish)
    if as_object:
        terminal.line(json.dumps(_as_json(wish, made, device, refusal, others), ensure_ascii=False))
    else:
        _show(terminal, wish, made, device, refusal, others)
    if refusal is not None:
        raise typer.Exit(refusal.exit_code)


def _show(
    terminal: Terminal,
    wish: Wish,
    made: MemoryPlan,
    device: str,
    refusal: Exception | None,
    others: list[Alternative],
) -> None:
    from edgeseek.memory.conversion_peak import hessian_bytes

    footprint = wish.footprint
    terminal.line(f"{footprint.name} ({footprint.stored}) on {_machine(device)}")
    terminal.line()
    for line in columns([("KIND", "BYTES", ""), *_rows(wish, made)], right=(1,)):
        terminal.line(line)
    terminal.line()
    streams = f"{made.slots} × {made.context} tokens" if made.slots > 1 else f"{made.context} tokens"
    if refusal is None:
        spare = size(made.available - made.needed)
        terminal.line(f"fits: a context of {streams} ({made.context_reason}), {spare} to spare")
    else:
        terminal.line(f"does not fit: {refusal}")
        if others:
            terminal.line("what fits:")
        for other in others:
            streams = f"{other.plan.slots} × {other.plan.context} tokens"
            terminal.line(f"  {other.options}: {size(other.plan.needed)} for {streams}")
        if not others:
            terminal.line("nothing near it fits; a smaller model is needed")
    if footprint.conversion is not None:
        peak = footprint.conversion
        terminal.line(
            f"importing it takes {size(peak.needed)} at its peak ({size(peak.anonymous)} private, "
            f"{size(peak.file_backed)} of files), quantizing it as much; gptq, which needs a text, also the "
            f"model at work and {size(hessian_bytes(footprint.config))} for its largest Hessian"
        )


def _rows(wish: Wish, made: MemoryPlan) -> list[tuple[str, str, str]]:
    on_disk = f"; {size(made.experts_on_disk)} of experts stay on the disk" if made.experts_on_disk else ""
    return [
        ("weights", size(made.weights), f"mapped from the package, shared{on_disk}"),
        (
            "KV cache",
            size(made.kv),
            f"{made.kv_token_bytes:,} bytes a token at {made.kv_type}, {made.blocks} blocks of 32 tokens",
        ),
        ("activations", size(made.work), "buffers of a step of 512 tokens"),
        ("logits", size(made.logits), "fp32 rows of a step"),
        ("runtime", size(made.runtime), f"interpreter, vocabulary, {wish.threads} threads"),
        ("libraries", size(made.libraries), "mapped from files, shared"),
        ("needed", size(made.needed), f"{size(made.anonymous)} private, {size(made.file_backed)} of files"),
        ("reserve", size(made.reserve), "left to the rest of the machine, or of the group"),
        ("available", size(made.available), f"by {made.decided_by}"),
    ]


def _machine(device: str) -> str:
    return "this machine" if device == "this" else device


def _as_json(
    wish: Wish,
    made: MemoryPlan,
    device: str,
    refusal: Exception | None,
    others: list[Alternative],
) -> dict[str, Any]:
    from edgeseek.memory.conversion_peak import hessian_bytes

    footprint = wish.footprint
    return {
        "model": footprint.name,
        "stored": footprint.stored,
        "device": device,
        "fits": refusal is None,
        "reason": None if refusal is None else str(refusal),
        "plan": _plan_json(made),
        "alternatives": [{"options": other.options, "plan": _plan_json(other.plan)} for other in others],
        "gptq_hessian_bytes": hessian_bytes(footprint.config),
        "import_peak": None if footprint.conversion is None else asdict(footprint.conversion),
    }


def _plan_json(made: MemoryPlan) -> dict[str, Any]:
    return {
        **asdict(made),
        "needed": made.needed,
        "anonymous": made.anonymous,
        "file_backed": made.file_backed,
    }
