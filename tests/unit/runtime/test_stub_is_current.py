"""The checked-in stub of the extension says what the built extension has."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import edgeseek

ROOT = Path(__file__).resolve().parents[3]


def test_the_stub_is_what_the_generator_makes_of_the_extension() -> None:
    pytest.importorskip("nanobind")
    spec = importlib.util.spec_from_file_location("make_stub", ROOT / "tools" / "make_stub.py")
    assert spec is not None
    assert spec.loader is not None
    make_stub = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_stub)
    installed = Path(edgeseek.__file__).with_name("_core.pyi")
    assert installed.read_text(encoding="utf-8") == make_stub.generate(), "run: make stub"
