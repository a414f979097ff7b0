"""`edgeseek doctor`: what this machine has and what it means."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from edgeseek.cli import options
from edgeseek.cli.services import services_of
from edgeseek.cli.terminal import Terminal

if TYPE_CHECKING:
    from edgeseek.doctor import Examination

#: Columns of a table that no terminal shows.
_WIDTH = 140


def doctor(context: typer.Context, as_object: options.Json = False) -> None:
    """Show what this machine has, what it means for models, and what would mend it.

    Processor, memory, power sensors and software; each line is OK, a note (works, could be better) or a
    problem. Nothing is changed and no model is loaded. A problem makes the exit code 1.
    """
    services = services_of(context)
    found = services.examine(services.settings)
    if as_object:
        services.terminal.line(json.dumps(found.as_json(), ensure_ascii=False))
    else:
        _show(found, services.terminal)
    if found.count("problem"):
        raise typer.Exit(1)


def _show(found: Examination, terminal: Terminal) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = None if terminal.stdout_is_terminal else _WIDTH
    console = Console(file=terminal.stdout, highlight=False, width=width)
    console.print(found.device.name, markup=False)
    looks = {"ok": ("OK", "green"), "note": ("note", "yellow"), "problem": ("problem", "bold red")}
    for name, part in found.parts.items():
        table = Table("", name, "found", "what it means", title_justify="left", expand=False)
        for finding in part:
            word, style = looks[finding.status]
            meaning = Text(finding.meaning)
            if finding.remedy is not None:
                meaning.append(f"\n→ {finding.remedy}", style="cyan")
            table.add_row(Text(word, style=style), Text(finding.subject), Text(finding.found), meaning)
        console.print(table)
    problems, notes = found.count("problem"), found.count("note")
    if problems or notes:
        console.print(
            f"{_counted(problems, 'problem')}, {_counted(notes, 'note')}; → says what would mend it"
        )
    else:
        console.print("nothing to mend")


def _counted(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"
