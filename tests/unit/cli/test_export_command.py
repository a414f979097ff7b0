"""`export` writes the folder and says in one line what became of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.make_models.tiny import CASES, write
from tests.unit.cli.fakes import Console


def test_a_folder_is_exported(console: Console, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="needs onnx: pip install 'edgeseek[onnx]'")
    source, target = write(CASES["llama-tied"], tmp_path / "hf"), tmp_path / "out" / "m.onnx"
    found = console.run(
        "export", str(source), "--output", str(target), "--quantize", "f16", "--max-seq-len", "64"
    )
    assert found.code == 0
    assert found.out.startswith(f"{target} (")
    assert found.out.endswith("): f16, up to 64 tokens, 15 of 15 matrices rounded\n")
    assert target.is_file()
    again = console.run("export", str(source), "--output", str(target))
    assert again.code == 1
    assert "exists already" in again.err


def test_another_format_is_refused(console: Console, tmp_path: Path) -> None:
    found = console.run("export", "m", "--output", str(tmp_path / "x"), "--format", "tflite")
    assert found.code == 2
    assert "format 'tflite' cannot be exported to; 'onnx' can" in found.err
