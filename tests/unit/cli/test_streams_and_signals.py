"""Closed pipes, full disks, odd terminals and Ctrl-C, with the command as a process of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PROGRAM = (sys.executable, "-m", "tests.unit.cli.fake_program")
SHORT = ("run", "--raw", "--prompt", "x", "--max-tokens", "2")
SECONDS = 30
# The first terminal that a session's leader opens controls it, so that Ctrl-C there becomes a signal.
_TAKE_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
os.execv(sys.argv[1], sys.argv[1:])
"""


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PROGRAM, *words], cwd=ROOT, timeout=SECONDS, check=False, **options)


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    process = subprocess.Popen(
        [*PROGRAM, "run", "--prompt", "x"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(4) == "😀".encode()
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(SECONDS) == 141
    assert len(errors.splitlines()) == 1
    assert errors.startswith("fake-model: context")


def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        found = run(*SHORT, stdout=full, stderr=subprocess.PIPE)
    assert found.returncode == 1
    assert found.stderr.decode().splitlines()[1:] == [
        "edgeseek: cannot write to stdout: No space left on device"
    ]


def test_a_closed_stdout_is_no_crash() -> None:
    command = " ".join([*PROGRAM, *SHORT, ">&-"])
    errors = subprocess.PIPE
    found = subprocess.run(command, shell=True, cwd=ROOT, timeout=SECONDS, check=False, stderr=errors)
    assert found.returncode == 0
    assert b"Traceback" not in found.stderr


def test_a_terminal_that_is_not_utf_8_shows_question_marks() -> None:
    found = run(*SHORT, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (found.returncode, found.stdout) == (0, b"x? 1 2 \n")


def test_a_prompt_in_utf_8_is_understood_in_the_c_locale() -> None:
    words = ("run", "--raw", "--max-tokens", "1", "--prompt", "你好")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "utf-8"}
    found = run(*words, capture_output=True, env={**os.environ, **plain})
    assert found.stdout.decode() == "你好😀 1 \n"


def test_bytes_on_stdin_that_are_no_text_are_refused() -> None:
    found = run("run", "--raw", input=b"ab\xff", capture_output=True)
    assert found.returncode == 2
    assert (
        found.stderr
        == b"edgeseek: the text on stdin is not UTF-8 (byte 2); convert it, for example with iconv\n"
    )


def test_ctrl_c_ends_one_answer_with_130() -> None:
    process = subprocess.Popen(
        [*PROGRAM, "run", "--prompt", "x"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.read(4)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert rest.endswith(b"\n")
    assert b"Traceback" not in errors


class TerminalProcess:
    """The program on a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        self._fd, terminal = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *PROGRAM, *words],
            cwd=ROOT,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self._seen = ""

    def expect(self, pattern: str) -> str:
        """Read until `pattern` appears; returns everything up to it."""
        deadline = time.monotonic() + SECONDS
        while (found := re.search(pattern, self._seen)) is None:
            if time.monotonic() > deadline or not select.select([self._fd], [], [], SECONDS)[0]:
                raise AssertionError(f"{pattern!r} did not appear in {self._seen!r}")
            try:
                self._seen += os.read(self._fd, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended before {pattern!r}: {self._seen!r}") from None
        before, self._seen = self._seen[: found.end()], self._seen[found.end() :]
        return before

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def interrupt_prompt(self, pattern: str) -> None:
        """Ctrl-C until `pattern` appears: readline misses one that comes while it starts to wait."""
        for _ in range(SECONDS):
            self.type("\x03")
            if select.select([self._fd], [], [], 1)[0]:
                break
        self.expect(pattern)

    def wait(self) -> int:
        code = self._process.wait(SECONDS)
        os.close(self._fd)
        return code


def test_ctrl_c_in_a_chat_stops_the_answer_and_not_the_program() -> None:
    chat = TerminalProcess("run")
    chat.expect(">>> ")
    chat.type("count\n")
    chat.expect(r"\b5 ")
    chat.type("\x03")
    chat.expect("stopped")
    chat.expect(">>> ")
    chat.type("again\n")
    chat.expect(r"\b3 ")
    chat.type("\x03")
    chat.expect(">>> ")
    chat.interrupt_prompt("Ctrl-D or /exit leaves")
    chat.expect(">>> ")
    chat.type("\x04")
    assert chat.wait() == 0
