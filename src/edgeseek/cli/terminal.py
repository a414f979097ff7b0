"""The three streams of a command: answers on stdout, everything else on stderr.

Knows no command. A reader that goes away and a terminal that cannot show a character are ordinary
events here, not crashes.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from edgeseek.errors import StorageError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

#: Control characters that a model's text must not pass to a terminal, where they could move the cursor,
#: retitle the window or answer back. Newline, tab and carriage return are harmless.
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t\r"}


class OutputClosedError(Exception):
    """Whoever read our stdout went away (`edgeseek list | head -1`); nothing is left to do."""


class Terminal:
    """The streams of one command."""

    def __init__(self, stdin: TextIO, stdout: TextIO, stderr: TextIO) -> None:
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr
        for stream in (stdout, stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")

    @classmethod
    def of_process(cls) -> Terminal:
        """This process's own streams; one that the caller closed (`>&-`) leads nowhere."""
        nowhere = Path(os.devnull)
        return cls(
            sys.stdin or nowhere.open(encoding="utf-8"),
            sys.stdout or nowhere.open("w", encoding="utf-8"),
            sys.stderr or nowhere.open("w", encoding="utf-8"),
        )

    @property
    def stdin_is_terminal(self) -> bool:
        """Whether a person may type."""
        return self._stdin.isatty()

    @property
    def stdout_is_terminal(self) -> bool:
        """Whether answers go to a screen."""
        return self._stdout.isatty()

    @property
    def stderr_is_terminal(self) -> bool:
        """Whether notes and bars go to a screen."""
        return self._stderr.isatty()

    @property
    def stdout(self) -> TextIO:
        """Where answers go, for what draws tables itself."""
        return self._stdout

    @property
    def stderr(self) -> TextIO:
        """Where a log goes."""
        return self._stderr

    def write(self, text: str) -> None:
        """Show a piece of an answer at once.

        Raises OutputClosedError when nobody reads it any more, StorageError where it cannot be written.
        """
        if self.stdout_is_terminal:
            text = text.translate(_CONTROLS)
        try:
            self._stdout.write(text)
            self._stdout.flush()
        except BrokenPipeError as error:
            raise OutputClosedError from error
        except OSError as error:
            raise StorageError(f"cannot write to stdout: {error.strerror or error}") from error

    def line(self, text: str = "") -> None:
        """One line on stdout."""
        self.write(text + "\n")

    def break_line(self) -> None:
        """Go on below what the user typed, without a word on stdout."""
        self._stderr.write("\n")
        self._stderr.flush()

    def note(self, text: str) -> None:
        """One line on stderr for the person who watches; dim where the terminal can."""
        self.console().print(text, style="dim", markup=False, highlight=False, soft_wrap=True)

    def error(self, text: str) -> None:
        """One line on stderr that says what went wrong."""
        one_line = " ".join(text.split()).translate(_CONTROLS)
        self.console().print(
            f"edgeseek: {one_line}", style="red", markup=False, highlight=False, soft_wrap=True
        )

    def console(self) -> Console:
        """A rich console on stderr."""
        from rich.console import Console

        return Console(file=self._stderr)

    def read_line(self, prompt: str) -> str:
        """One line that the user types, with editing and history on a terminal.

        Raises EOFError at the end of input (Ctrl-D) and KeyboardInterrupt on Ctrl-C.
        """
        if self._stdin is sys.stdin and self.stdin_is_terminal and self.stdout_is_terminal:
            # Importing readline is what gives input() its line editing and history.
            import readline  # noqa: F401

            return input(prompt)
        self._stderr.write(prompt)
        self._stderr.flush()
        line = self._stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def read_all(self) -> str:
        """Everything on stdin, as UTF-8. Raises UsageError at bytes that are no UTF-8."""
        binary = getattr(self._stdin, "buffer", None)
        if binary is None:
            return self._stdin.read()
        try:
            text: str = binary.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"the text on stdin is not UTF-8 (byte {error.start}); convert it, for example with iconv"
            ) from error
        return text.removeprefix("\ufeff")

    def confirm(self, question: str) -> bool:
        """Ask on stderr; only an answer that begins with y is a yes."""
        try:
            return self.read_line(f"{question} [y/N] ").strip().lower().startswith("y")
        except EOFError:
            return False
