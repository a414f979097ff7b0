"""Text in and out of commands: files that options name, figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgeseek.errors import UsageError


def read_text(path: Path, option: str) -> str:
    """The UTF-8 text that `option` names. Raises UsageError."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {option} {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {path} is not UTF-8 (byte {error.start}); convert it first") from error


def size(count: int) -> str:
    """Bytes in decimal units, the ones in which models are advertised: 98.4 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 999.95:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Lines of a table whose columns line up, two spaces apart; columns in `right` end together.

    Never cut to the terminal's width, so that a script can read it.
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
