"""Real models continue eight prompts as transformers does on the dequantized weights.

The references are made by tests/make_models/greedy_references.py. Our activations are int8, so a first
difference is accepted where the reference itself was nearly undecided: its two best logits within 0.2.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeseek import LLM, SamplingParams
from edgeseek.settings import Settings

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODELS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": "greedy_smollm2.json",
    "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf": "greedy_qwen15.json",
}
COMPARED = 32
UNDECIDED = 0.2

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module", params=MODELS, ids=["smollm2", "qwen15"])
def model(
    request: pytest.FixtureRequest,
    test_model: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """(LLM, references) of one real model, converted into a folder of its own."""
    path = test_model(request.param)
    home = tmp_path_factory.mktemp("home")
    settings = Settings.from_environment({"EDGESEEK_HOME": str(home)})
    references = json.loads((FIXTURES / MODELS[request.param]).read_text(encoding="utf-8"))
    with LLM.load(path, context=512, settings=settings) as llm:
        yield llm, references


def test_prompts_encode_as_in_transformers(model: Any) -> None:
    llm, references = model
    for reference in references:
        assert llm.tokenizer.encode(reference["prompt"], special=False) == reference["prompt_ids"]


def test_greedy_continuations_equal_until_the_reference_is_undecided(
    model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    llm, references = model
    params = SamplingParams(temperature=0.0, max_tokens=COMPARED, ignore_eos=True)
    generations = [llm.generate(reference["prompt_ids"], params) for reference in references]
    for reference, generation in zip(references, generations, strict=True):
        ids = [token for chunk in generation for token in chunk.token_ids]
        wanted = reference["ids"][:COMPARED]
        assert len(ids) == COMPARED
        first = next((i for i, (a, b) in enumerate(zip(ids, wanted, strict=True)) if a != b), None)
        if first is not None:
            gap = reference["gaps"][first]
            with capsys.disabled():
                print(f"\n{reference['prompt']!r}: token {first} differs, the reference's gap is {gap}")
            assert gap <= UNDECIDED
