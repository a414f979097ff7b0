"""Tiny random models at f32 weights give the logits that transformers gives for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.make_models.reference import (
    FIXTURES,
    PROMPT_TOKENS,
    load_reference,
    reference_logits,
    weights_digest,
)
from tests.make_models.tiny import CASES, TinyModel, prompt_ids, tensors, write
from tests.synthetic.models import backend_of, logits_of, package_of

TOLERANCE = 1e-3


def expected(case: TinyModel) -> npt.NDArray[np.float32]:
    """The fixture's logits for `case`, [PROMPT_TOKENS, vocab]."""
    with np.load(FIXTURES / f"{case.name}.npz") as arrays:
        logits: npt.NDArray[np.float32] = arrays["logits"]
    return logits


def worst_difference(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32]) -> float:
    """Largest difference in any row, relative to the row's largest logit."""
    assert got.shape == want.shape
    return float((np.abs(got - want).max(axis=1) / np.abs(want).max(axis=1)).max())


def our_logits(
    case: TinyModel, folder: Path, changed: dict[str, npt.NDArray[np.float32]] | None = None
) -> npt.NDArray[np.float32]:
    with package_of(case, folder, changed=changed) as package:
        return logits_of(backend_of(package, PROMPT_TOKENS), prompt_ids(case, PROMPT_TOKENS))


@pytest.mark.parametrize("name", CASES)
def test_fixture_belongs_to_these_weights_and_this_prompt(name: str) -> None:
    with np.load(FIXTURES / f"{name}.npz") as arrays:
        assert str(arrays["weights"]) == weights_digest(CASES[name])
        assert arrays["ids"].tolist() == prompt_ids(CASES[name], PROMPT_TOKENS)


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    assert worst_difference(our_logits(CASES[name], tmp_path), expected(CASES[name])) < TOLERANCE


@pytest.mark.parametrize("name", ["qwen2-tied", "qwen2-untied", "llama-biases"])
@pytest.mark.parametrize("part", ["q", "k", "v"])
def test_a_bias_that_is_left_out_shows(name: str, part: str, tmp_path: Path) -> None:
    case = CASES[name]
    zeroed = {
        key: np.zeros_like(value) for key, value in tensors(case).items() if key.endswith(f"{part}_proj.bias")
    }
    assert len(zeroed) == case.layers
    assert worst_difference(our_logits(case, tmp_path, zeroed), expected(case)) > 10 * TOLERANCE


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("qwen3-")])
@pytest.mark.parametrize("part", ["q", "k"])
def test_a_norm_of_heads_that_is_left_out_shows(name: str, part: str, tmp_path: Path) -> None:
    # Weights of one leave the norm but not its gains.
    case = CASES[name]
    flat = {
        key: np.ones_like(value)
        for key, value in tensors(case).items()
        if key.endswith(f"{part}_norm.weight")
    }
    assert len(flat) == case.layers
    assert worst_difference(our_logits(case, tmp_path, flat), expected(case)) > 10 * TOLERANCE


@pytest.mark.parametrize("name", ["llama-tied", "qwen2-untied"])
def test_rotation_that_is_left_out_shows(name: str, tmp_path: Path) -> None:
    # Positions divided by a billion: every rotation is by an angle of zero.
    case = CASES[name]
    unrotated = TinyModel(
        **{**vars(case), "extra": {"rope_scaling": {"type": "linear", "factor": 1e9}}},
    )
    assert worst_difference(our_logits(unrotated, tmp_path), expected(case)) > 10 * TOLERANCE


@pytest.mark.reference
@pytest.mark.parametrize("name", CASES)
def test_transformers_still_gives_the_fixture(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    model = load_reference(write(CASES[name], tmp_path))
    live = reference_logits(model, prompt_ids(CASES[name], PROMPT_TOKENS))
    assert worst_difference(live, expected(CASES[name])) < 1e-5
