"""A checkpoint that the core cannot run is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgeseek.checkpoints import open_checkpoint
from edgeseek.errors import UnsupportedCheckpointError
from edgeseek.package import convert
from tests.make_models.tiny import CASES, write


@pytest.mark.parametrize("head_dim", [8, 24, 272])
def test_a_head_size_the_core_lacks_is_named(head_dim: int, tmp_path: Path) -> None:
    model = replace(CASES["llama-tied"], head_dim=head_dim)
    with (
        open_checkpoint(write(model, tmp_path / "checkpoint")) as checkpoint,
        pytest.raises(
            UnsupportedCheckpointError, match=f"heads of {head_dim} dimensions .* multiples of 16 up to 256"
        ),
    ):
        convert(
            checkpoint,
            tmp_path / "package",
            name="tiny",
            tokenizer_json=b"{}",
            chat_template=None,
            generation_config={},
        )
    assert not (tmp_path / "package").exists()
