"""SmolLM2 at temperature 1, held to a schema: what ends by itself is valid, and most of it does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from edgeseek.engine import SamplingParams
from edgeseek.llm import LLM
from edgeseek.settings import Settings

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.mark.real_model
def test_what_ends_by_itself_is_valid(test_model: Callable[[str], Path], tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path)
    with LLM.load(
        test_model("SmolLM2-135M-Instruct.Q4_1.gguf"), context=512, slots=8, settings=settings
    ) as llm:
        assert llm.chat_template is not None
        text = llm.chat_template.render([{"role": "user", "content": "Describe a person as JSON."}])
        ids = llm.tokenizer.encode_prompt(text)
        constraint = llm.grammars.json(SCHEMA)
        running = [
            llm.engine.submit(
                ids,
                SamplingParams(temperature=1.0, seed=seed, max_tokens=200),
                constraint=constraint.fresh(),
            )
            for seed in range(32)
        ]
        ended = 0
        for generation in running:
            answer = generation.join()
            if answer.finish_reason == "stop":
                ended += 1
                jsonschema.validate(json.loads(answer.text), SCHEMA)
                assert answer.text.endswith("}")
        assert ended >= 16
