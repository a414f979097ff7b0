"""Sizes, tables and progress read as they should."""

from __future__ import annotations

import io

import pytest

from edgeseek.cli.progress import Progress
from edgeseek.cli.terminal import Terminal
from edgeseek.cli.text import columns, size
from tests.unit.cli.fakes import Stream


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (98_362_432, "98.4 MB"),
        (999_960_000, "1.00 GB"),
        (1_117_320_768, "1.12 GB"),
        (140_000_000_000, "140.00 GB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_columns_line_up_and_leave_no_trailing_spaces() -> None:
    rows = [("NAME", "SIZE", "X"), ("a", "1 B", ""), ("long-name", "10 MB", "y")]
    assert columns(rows, right=(1,)) == ["NAME        SIZE  X", "a            1 B", "long-name  10 MB  y"]


def shown(*, terminal: bool) -> str:
    errors = Stream(terminal=terminal)
    with Progress(Terminal(io.StringIO(), io.StringIO(), errors)) as progress:
        progress("downloading a[b]", 0, None)
        progress("downloading a[b]", 50_000_000, 100_000_000)
        progress("downloading a[b]", 100_000_000, 100_000_000)
        progress("converting a[b]", 5_000_000, 5_000_000)
        progress.note("done")
    return errors.getvalue()


def test_without_a_terminal_each_stage_is_one_line() -> None:
    assert shown(terminal=False) == "downloading a[b]\nconverting a[b] (5.0 MB)\ndone\n"


def test_on_a_terminal_bars_show_the_stage_and_the_bytes() -> None:
    text = shown(terminal=True)
    assert "downloading a[b]" in text
    assert "100.0/100.0 MB" in text
    assert text.rstrip("\x1b[0m\n").endswith("done")


def test_work_that_is_already_done_shows_nothing() -> None:
    errors = Stream(terminal=True)
    with Progress(Terminal(io.StringIO(), io.StringIO(), errors)):
        pass
    assert errors.getvalue() == ""
