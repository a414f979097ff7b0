"""Whatever goes wrong is one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import errno

import pytest

from edgeseek.cli import main
from edgeseek.errors import EdgeseekError, StorageError, UsageError
from tests.unit.cli.fakes import Console


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("choose another"), 2, "edgeseek: choose another"),
        (EdgeseekError("first\n  second"), 1, "edgeseek: first second"),
        (StorageError("a \x1b[31mname"), 1, "edgeseek: a [31mname"),
        (StorageError("[bold]a[/bold] [/]"), 1, "edgeseek: [bold]a[/bold] [/]"),
        (StorageError("x" * 300), 1, "edgeseek: " + "x" * 300),
        (OSError(errno.EACCES, "Permission denied", "/f"), 1, "edgeseek: Permission denied: /f"),
        (
            MemoryError(),
            1,
            "edgeseek: out of memory; use a smaller model, --scheme or --context, or free memory",
        ),
    ],
)
def test_an_error_of_a_command(console: Console, error: Exception, code: int, line: str) -> None:
    def fail(*words: object, **options: object) -> None:
        raise error

    console.changes["load"] = fail
    found = console.run("run", "--prompt", "x")
    assert (found.code, found.out, found.error_line) == (code, "", line)


def test_ctrl_c_is_130(console: Console) -> None:
    def interrupt(*words: object, **options: object) -> None:
        raise KeyboardInterrupt

    console.changes["load"] = interrupt
    assert console.run("run", "--prompt", "x").code == 130


def test_an_unknown_option_and_an_unknown_command_exit_with_2(console: Console) -> None:
    assert console.run("run", "--nonsense").code == 2
    assert console.run("nonsense").code == 2
    assert console.run("run", "--context", "many").code == 2
    assert console.run("run", "--threads", "0").code == 2


def test_a_bad_environment_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGESEEK_ISA", "sse9")
    assert main(["list"]) == 2
    assert capsys.readouterr().err.startswith("edgeseek: EDGESEEK_ISA is 'sse9'; set it to one of scalar,")
    assert main(["--help"]) == 0
