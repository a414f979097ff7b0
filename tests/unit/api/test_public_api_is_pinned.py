"""The public names are what they are, and importing the package costs almost nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import edgeseek

_HEAVY = ("numpy", "tokenizers", "jinja2", "rich", "typer", "edgeseek._core", "edgeseek.llm")


def test_the_public_names() -> None:
    assert edgeseek.__all__ == ["LLM", "SamplingParams", "__version__", "errors", "load"]
    assert dir(edgeseek) == edgeseek.__all__


def test_the_version_is_the_projects() -> None:
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert f'\nversion = "{edgeseek.__version__}"\n' in project


def test_errors_are_the_tree() -> None:
    from edgeseek.errors import EdgeseekError

    assert edgeseek.errors.EdgeseekError is EdgeseekError


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'edgeseek' has no attribute 'nonsense'"):
        _ = edgeseek.nonsense


def test_names_are_imported_on_first_use() -> None:
    from edgeseek.llm import LLM, SamplingParams

    assert edgeseek.LLM is LLM
    assert edgeseek.SamplingParams is SamplingParams


def test_import_brings_nothing_heavy_along() -> None:
    script = f"import sys, edgeseek; print([m for m in {_HEAVY!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
