"""A console with a fake model, fresh for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.fakes import Console


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return Console(tmp_path)
