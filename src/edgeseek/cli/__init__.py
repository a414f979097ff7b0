"""The `edgeseek` command: one file per command, and one place that turns errors into exit codes.

Knows nothing of kernels or file formats; it shows what `llm`, `calibration` and the store return.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeseek.cli.services import Services

#: What a shell reports for a program that SIGINT ended: 128 + 2.
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None, services: Services | None = None) -> int:
    """Run one command and return its exit code.

    `argv` are the words after the program's name (default: this process's); `services` is what the
    commands work with (default: this process's environment and streams, and the real model loader).
    """
    try:
        # Inside, because on a slow board even the imports last long enough for a Ctrl-C.
        from edgeseek.cli.app import run_command

        return run_command(argv, services)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
