"""`response_format`: what ends by itself follows the schema, whatever the model would rather say."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest

from tests.unit.server.served import Loader, error_of, events, served

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["model", "class", "é"]},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
        "done": {"type": "boolean"},
    },
    "required": ["name", "kind", "sizes", "done"],
    "additionalProperties": False,
}


def by_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def test_answers_follow_the_schema_at_any_temperature_and_end_after_the_brace(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            ask = {"response_format": by_schema(SCHEMA), "max_tokens": 200, "n": 16}
            texts = set()
            for seed, temperature in ((0, 1.0), (16, 1.0), (32, 8.0), (48, 50.0)):
                answer = await s.chat(**ask, seed=seed, temperature=temperature)
                for choice in answer.json()["choices"]:
                    assert choice["finish_reason"] == "stop"
                    text = choice["message"]["content"]
                    jsonschema.validate(json.loads(text), SCHEMA)
                    assert text.startswith("{")
                    assert text.endswith("}")
                    texts.add(text)
            assert len(texts) > 30

    asyncio.run(run())


def test_any_object_is_an_object_also_in_a_stream_and_beside_others(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            ask = {"response_format": {"type": "json_object"}, "temperature": 1.0, "max_tokens": 60}
            answers = await asyncio.gather(
                *(s.chat(**ask, seed=i, stream=True) for i in range(12)), s.chat(max_tokens=60)
            )
            whole = 0
            for answer in answers[:-1]:
                chunks = events(answer)
                text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
                if chunks[-1]["choices"][0]["finish_reason"] == "stop":
                    whole += 1
                    assert isinstance(json.loads(text), dict)
                else:
                    assert text.startswith("{")
            assert whole > 0
            free = await s.chat(max_tokens=60)
            assert answers[-1].json()["choices"] == free.json()["choices"]

    asyncio.run(run())


def test_a_budget_that_is_too_short_gives_length(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            answer = await s.chat(response_format=by_schema(SCHEMA), max_tokens=3)
            assert answer.json()["choices"][0]["finish_reason"] == "length"

    asyncio.run(run())


@pytest.mark.parametrize(
    "schema",
    [{"type": "nonsense"}, {"type": "object", "properties": 5}, {"$ref": "#/$defs/missing"}],
)
def test_a_schema_that_cannot_be_followed_is_400_and_named(load: Loader, schema: dict[str, Any]) -> None:
    async def run() -> None:
        async with served(load) as s:
            response = await s.chat(response_format=by_schema(schema))
            assert response.status_code == 400
            assert error_of(response)["param"] == "response_format"
            assert (await s.chat()).status_code == 200

    asyncio.run(run())
