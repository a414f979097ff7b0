"""Tiny models with experts give the logits and the choices that a plain numpy reference gives for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeseek.runtime.backend import Slice
from tests.make_models.tiny_experts import CASES, expected, prompt_ids, write
from tests.synthetic.models import backend_of, package_folder

TOLERANCE = 1e-4
LENGTH = 24


def worst_difference(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference in any row, relative to the row's largest value."""
    assert got.shape == want.shape
    return float((np.abs(got - want).max(axis=1) / np.abs(want).max(axis=1)).max())


@pytest.mark.parametrize("name", CASES)
def test_logits_and_routing_equal_the_reference(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    ids = prompt_ids(case, LENGTH)
    want = expected(case, ids)
    # No choice is so close that rounding could turn it.
    assert want.margin > 0.01
    with package_folder(write(case, tmp_path / "checkpoint"), tmp_path / "package", "f32") as package:
        backend = backend_of(package, LENGTH)
        taps = [f"layers.{layer}.routing" for layer in want.routing]
        logits, found = backend.forward_with_taps([Slice(ids, 0, [1, 0], "all")], taps)
    assert worst_difference(logits, want.logits) < TOLERANCE
    for layer, weights in want.routing.items():
        got = found[f"layers.{layer}.routing"]
        assert ((got != 0) == (weights != 0)).all()
        assert worst_difference(got, weights) < TOLERANCE
