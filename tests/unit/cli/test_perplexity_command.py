"""`perplexity` reads the text, passes it on and prints the figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgeseek.calibration import PerplexityResult
from edgeseek.errors import ContextTooLongError
from tests.unit.cli.fakes import Console


@pytest.fixture
def calls(console: Console) -> list[tuple[str, int]]:
    """Puts a measurement with a known result in; returns what it was asked."""
    made: list[tuple[str, int]] = []

    def measure(llm: Any, text: str, window: int, *, progress: Any) -> PerplexityResult:
        progress("perplexity", 50, 100)
        made.append((text, window))
        return PerplexityResult(12.345678, 2.5133, 1022, 2, window)

    console.changes["perplexity"] = measure
    return made


def test_the_figure_is_printed(console: Console, calls: list[tuple[str, int]], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Füchse 狐", encoding="utf-8")
    found = console.run("perplexity", "m", "--text", str(text))
    assert found.out == "perplexity 12.3457 over 1022 tokens in windows of 512\n"
    assert found.err.splitlines()[1] == "perplexity (100 tokens)"
    assert calls == [("Füchse 狐", 512)]
    assert console.llm.load_options["context"] == 512
    assert console.llm.closed


def test_json_has_the_documented_fields(
    console: Console, calls: list[tuple[str, int]], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("x")
    found = console.run("perplexity", "m", "--text", str(text), "--window", "64", "--json")
    assert json.loads(found.out) == {"perplexity": 12.345678, "tokens": 1022, "windows": 2, "window": 64}


def test_a_text_that_cannot_be_read_is_named_before_the_model_is_loaded(
    console: Console, tmp_path: Path
) -> None:
    missing = console.run("perplexity", "m", "--text", str(tmp_path / "missing"))
    assert missing.code == 2
    assert missing.error_line == f"edgeseek: cannot read --text {tmp_path}/missing: No such file or directory"
    latin = tmp_path / "latin"
    latin.write_bytes(b"F\xfcchse")
    found = console.run("perplexity", "m", "--text", str(latin))
    assert found.code == 2
    assert "is not UTF-8 (byte 1)" in found.error_line
    assert console.llm.load_options == {}


def test_a_window_larger_than_the_model_knows_is_named_as_such(console: Console, tmp_path: Path) -> None:
    def refuse(_model: str, **options: Any) -> Any:
        raise ContextTooLongError(options["context"], 2048)

    console.changes["load"] = refuse
    text = tmp_path / "text.txt"
    text.write_text("x")
    found = console.run("perplexity", "m", "--text", str(text), "--window", "4096")
    assert found.code == 2
    assert found.error_line == (
        "edgeseek: a --window of 4096 tokens is more than the 2048 that the model knows; give 2048 or less"
    )
