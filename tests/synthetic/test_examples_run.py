"""The walk from a checkpoint to plain ONNX Runtime ends with one text three times."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.make_models.tiny import CASES, write

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_onnx_walk(tmp_path: Path) -> None:
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason="needs pip install 'edgeseek[onnx]'")
    model = write(CASES["llama-untied"], tmp_path / "tiny")
    command = [sys.executable, str(EXAMPLES / "onnx_walk.py"), str(model), str(tmp_path / "out")]
    found = subprocess.run(
        command,
        env={**os.environ, "EDGESEEK_HOME": str(tmp_path / "home"), "EDGESEEK_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in found.stdout.splitlines())
    assert list(lines) == ["quantized", "core", "exported", "onnx backend", "onnxruntime"]
    assert lines["onnx backend"] == lines["onnxruntime"]
    assert lines["exported"].startswith(str(tmp_path / "out" / "graph" / "model.onnx"))


def test_what_fits_on_a_board(tmp_path: Path) -> None:
    model = write(CASES["llama-untied"], tmp_path / "tiny")
    command = [sys.executable, str(EXAMPLES / "what_fits.py"), str(model / "config.json"), "rpi5-8g", "512"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("context 512 (asked for); needs ")
    assert "MemAvailable of rpi5-8g" in found.stdout
