"""Trained tiny models give the logits, the continuations and the perplexity that transformers gives.

The expected values are made by tests/make_models/trained.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeseek import LLM, SamplingParams
from edgeseek.calibration import perplexity
from edgeseek.quantize.schemes import Scheme
from edgeseek.settings import Settings
from tests.make_models.trained import FIXTURES, KEPT_ROWS, MODELS, SCHEMES, WINDOW
from tests.synthetic.models import backend_of, logits_of, package_folder

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / "trained.json").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"EDGESEEK_HOME": str(tmp_path / "home")})


@pytest.mark.parametrize("name", MODELS)
def test_logits_at_stored_precision_equal_the_reference(
    name: str, facts: dict[str, Any], test_model: Callable[[str], Path], tmp_path: Path
) -> None:
    ids = facts[name]["window_ids"]
    with package_folder(test_model(name), tmp_path / "package", "f32") as package:
        got = logits_of(backend_of(package, len(ids)), ids)[list(KEPT_ROWS)]
    with np.load(FIXTURES / "trained.npz") as arrays:
        want = arrays[name]
    assert got.shape == want.shape
    assert float((np.abs(got - want).max(axis=1) / np.abs(want).max(axis=1)).max()) < 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_greedy_continuations_equal_the_reference_while_it_is_decided(
    name: str, facts: dict[str, Any], test_model: Callable[[str], Path], settings: Settings
) -> None:
    with LLM.load(test_model(name), scheme="f32", context=512, settings=settings) as llm:
        for record in facts[name]["greedy"]:
            params = SamplingParams(temperature=0.0, max_tokens=len(record["ids"]), ignore_eos=True)
            assert list(llm.complete(record["prompt_ids"], params).token_ids) == record["ids"]


@pytest.mark.parametrize(
    ("name", "scheme"),
    [*((name, scheme) for name in MODELS for scheme in SCHEMES), ("tiny-deepseek-v2", "f32")],
)
def test_perplexity_is_that_of_the_dequantized_weights(
    name: str,
    scheme: Scheme,
    facts: dict[str, Any],
    test_model: Callable[[str], Path],
    settings: Settings,
) -> None:
    text = test_model("eval.txt").read_text(encoding="utf-8")
    with LLM.load(test_model(name), scheme=scheme, context=512, slots=8, settings=settings) as llm:
        result = perplexity(llm, text, window=WINDOW)
    assert result.windows == facts[name]["eval_tokens"] // WINDOW
    assert result.perplexity == pytest.approx(facts[name]["perplexity"][scheme], rel=0.005)


def test_an_int8_cache_costs_less_than_half_a_percent_of_perplexity(
    test_model: Callable[[str], Path], settings: Settings
) -> None:
    text = test_model("eval.txt").read_text(encoding="utf-8")[:20_000]
    found = []
    for kv in ("f16", "int8"):
        with LLM.load(
            test_model("SmolLM2-135M-Instruct.Q4_1.gguf"), context=2048, kv=kv, settings=settings
        ) as llm:
            found.append(perplexity(llm, text, 2048).perplexity)
    assert found[1] != found[0]
    assert abs(found[1] / found[0] - 1) < 0.005
