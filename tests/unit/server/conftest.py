"""A package of a tiny model, and a loader of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeseek.llm import LLM
from edgeseek.settings import Settings
from tests.make_models.tiny import CASES, write
from tests.unit.server.served import Loader


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Settings]:
    """The folder of a tiny model's package, and settings."""
    home = tmp_path_factory.mktemp("server")
    settings = Settings(cache_dir=home / "cache", threads=1)
    checkpoint = write(CASES["llama-tied"], home / "tiny")
    with LLM.load(checkpoint, settings=settings) as llm:
        assert llm.package_path is not None
        return llm.package_path, settings


@pytest.fixture
def load(package: tuple[Path, Settings]) -> Loader:
    """Loads the tiny model."""
    return Loader(*package)
