"""Scalings that depend on a text's length take the planned context instead, so nothing cached turns wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgeseek.package import Package
from edgeseek.runtime.native import NativeBackend
from tests.make_models.tiny import CASES, prompt_ids
from tests.synthetic.models import logits_of, package_of

ORIGINAL = 16


def logits(package: Package, ids: list[int], context: int | None) -> npt.NDArray[np.float32]:
    backend = NativeBackend(package, blocks=5, threads=1, context=context)
    return logits_of(backend, ids)


@pytest.mark.parametrize("name", ["llama-dynamic-rope", "llama-longrope-rope"])
def test_a_longer_text_changes_no_bit_of_what_came_before(name: str, tmp_path: Path) -> None:
    ids = prompt_ids(CASES[name], 4 * ORIGINAL)
    with package_of(CASES[name], tmp_path) as package:
        short, long = logits(package, ids[:10], 64), logits(package, ids, 64)
    assert short.tobytes() == long[:10].tobytes()


@pytest.mark.parametrize("name", ["llama-dynamic-rope", "llama-longrope-rope"])
def test_a_context_within_the_original_one_leaves_the_model_as_it_was_trained(
    name: str, tmp_path: Path
) -> None:
    ids = prompt_ids(CASES[name], 10)
    with package_of(CASES[name], tmp_path) as package:
        within, full, extended = (logits(package, ids, context) for context in (8, ORIGINAL, ORIGINAL + 1))
    assert within.tobytes() == full.tobytes()
    assert np.abs(extended - full).max() > 0.01


def test_without_a_plan_the_whole_context_of_the_model_counts(tmp_path: Path) -> None:
    case = CASES["llama-dynamic-rope"]
    ids = prompt_ids(case, 10)
    with package_of(case, tmp_path) as package:
        assert package.config.max_context == 4 * ORIGINAL
        assert logits(package, ids, None).tobytes() == logits(package, ids, 4 * ORIGINAL).tobytes()
