"""Fixtures that several rooms' tests share.

Real checkpoints are looked for in the folder that EDGESEEK_TEST_MODELS names (default
~/.cache/edgeseek-models); a test asks for one by file name and is skipped where it is missing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures"


def pytest_configure() -> None:
    """Undo an ignored SIGINT, which a background shell hands down to the programs that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of small checked-in files."""
    return FIXTURES


@pytest.fixture(scope="session")
def test_models() -> Path:
    """The folder of real models; it may be missing."""
    return Path(os.environ.get("EDGESEEK_TEST_MODELS") or Path.home() / ".cache" / "edgeseek-models")


@pytest.fixture(scope="session")
def test_model(test_models: Path) -> Callable[[str], Path]:
    """A function from a name in the folder of real models to its path; skips where it is missing."""

    def find(name: str) -> Path:
        path = test_models / name
        if not path.exists():
            pytest.skip(f"{path} is not there; set EDGESEEK_TEST_MODELS to the folder that holds it")
        return path

    return find
