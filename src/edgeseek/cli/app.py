"""The command table, and the one handler that turns an error into a line and an exit code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, ParamSpec

import typer

from edgeseek import __version__
from edgeseek.cli import EXIT_INTERRUPTED
from edgeseek.cli.services import Services
from edgeseek.cli.terminal import OutputClosedError, Terminal
from edgeseek.errors import EdgeseekError

#: What a shell reports for a program that SIGPIPE ended: 128 + 13.
_EXIT_OUTPUT_CLOSED = 141

P = ParamSpec("P")


def build_app() -> typer.Typer:
    """All commands, each from its own file, with the file's docstring as help."""
    from edgeseek.cli.bench import bench
    from edgeseek.cli.doctor import doctor
    from edgeseek.cli.export import export
    from edgeseek.cli.list import list_models
    from edgeseek.cli.perplexity import perplexity
    from edgeseek.cli.plan import plan
    from edgeseek.cli.pull import pull
    from edgeseek.cli.quantize import quantize
    from edgeseek.cli.rm import rm
    from edgeseek.cli.run import run
    from edgeseek.cli.serve import serve
    from edgeseek.cli.show import show

    app = typer.Typer(
        name="edgeseek",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Run DeepSeek-family language models on small Linux machines.",
        epilog="Environment: EDGESEEK_API_KEY, EDGESEEK_HOME, EDGESEEK_ISA, EDGESEEK_THREADS, HF_ENDPOINT, "
        "HF_TOKEN, NO_COLOR.",
    )
    app.callback()(_options)
    app.command("run")(_interruptible(run))
    app.command("serve")(_interruptible(serve))
    app.command("pull")(_interruptible(pull))
    app.command("plan")(_interruptible(plan))
    app.command("list")(_interruptible(list_models))
    app.command("show")(_interruptible(show))
    app.command("rm")(_interruptible(rm))
    app.command("bench")(_interruptible(bench))
    app.command("quantize")(_interruptible(quantize))
    app.command("export")(_interruptible(export))
    app.command("perplexity")(_interruptible(perplexity))
    app.command("doctor")(_interruptible(doctor))
    return app


def _interruptible(command: Callable[P, None]) -> Callable[P, None]:
    """`command`, ended by Ctrl-C with the shell's own exit code; older releases of typer make it 1."""

    @functools.wraps(command)
    def run(*words: P.args, **options: P.kwargs) -> None:
        try:
            command(*words, **options)
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None

    return run


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgeseek {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def run_command(argv: Sequence[str] | None, services: Services | None) -> int:
    """Run one command; see `edgeseek.cli.main`."""
    terminal = Terminal.of_process() if services is None else services.terminal
    try:
        command = typer.main.get_command(build_app())
        words = sys.argv[1:] if argv is None else [*argv]
        command.main(args=words, prog_name="edgeseek", obj=services)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except EdgeseekError as error:
        terminal.error(str(error))
        return error.exit_code
    except OutputClosedError:
        _forget_stdout()
        return _EXIT_OUTPUT_CLOSED
    except MemoryError:
        terminal.error("out of memory; use a smaller model, --scheme or --context, or free memory")
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        terminal.error(f"{error.strerror or error}{where}")
        return 1
    return 0


def _forget_stdout() -> None:
    """Point stdout at /dev/null, so that the interpreter's last flush does not fail once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
