"""Each command and option is in docs/cli.md, `--help` works for all, and it imports nothing heavy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from edgeseek.cli import main
from edgeseek.cli.app import build_app

DOCS = (Path(__file__).parents[3] / "docs/cli.md").read_text()
COMMANDS = (
    "run",
    "serve",
    "pull",
    "plan",
    "list",
    "show",
    "rm",
    "bench",
    "quantize",
    "export",
    "perplexity",
    "doctor",
)


def options_of(command: str) -> list[str]:
    group = typer.main.get_command(build_app())
    made = group.commands[command]  # type: ignore[attr-defined]
    return [name for parameter in made.params for name in parameter.opts if name.startswith("--")]


def test_these_are_the_commands() -> None:
    group = typer.main.get_command(build_app())
    assert tuple(group.commands) == COMMANDS  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_docs_have_a_section_with_every_option(command: str) -> None:
    section = re.search(rf"^## edgeseek {command}$(.*?)(?=^## )", DOCS, re.MULTILINE | re.DOTALL)
    assert section is not None
    words = set(re.findall(r"--[a-z][a-z-]*", section[1]))
    assert words == set(options_of(command)) - {"--help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_works(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: edgeseek {command}")
    assert all(option in shown for option in options_of(command))


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^  {command} +[A-Z]", shown, re.MULTILINE) for command in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "edgeseek 0.1.0\n"


def test_every_environment_variable_is_in_the_docs() -> None:
    import edgeseek.settings

    variables = re.findall(r"^\| ([A-Z_]+) ", edgeseek.settings.__doc__ or "", re.MULTILINE)
    assert variables
    assert all(variable in DOCS for variable in variables)


def test_help_imports_neither_numpy_nor_the_core() -> None:
    script = (
        "import sys; from edgeseek.cli import main; main(['run', '--help']); "
        "print([m for m in ('numpy', 'tokenizers', 'jinja2', 'edgeseek.llm') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_python_m_edgeseek_is_the_command() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "edgeseek", "--version"], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (0, "edgeseek 0.1.0\n")
