"""Our own OpenAPI document, held by schemathesis: whatever it allows or forbids, answers are as it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from edgeseek.settings import Settings
from tests.unit.server.local import in_thread
from tests.unit.server.served import NAME, Loader

# Not positive_data_acceptance: a request that keeps to the schema may still not fit the context, or name
# another model.
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture(scope="module")
def url(package: tuple[Path, Settings]) -> Iterator[str]:
    with in_thread(Loader(*package, context=64)) as server:
        yield server.url


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/openapi.json").json()
    return found


def test_every_operation_keeps_to_its_description(url: str, document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert "422" not in operation["responses"]
            if path != "/health":
                assert "401" in operation["responses"]
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    tried = 0
    statuses: set[int] = set()
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        _hold(operation, GenerationMode.POSITIVE, statuses)
        if operation.body:
            _hold(operation, GenerationMode.NEGATIVE, statuses)
        tried += 1
    assert tried >= 5
    assert {200, 400, 404} <= statuses


def _hold(operation: Any, mode: GenerationMode, statuses: set[int]) -> None:
    @settings(
        max_examples=25,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def keeps(case: Any) -> None:
        # Names are random else, so that nothing would reach the model.
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body.update(model=NAME, max_tokens=2)
        statuses.add(case.call_and_validate(checks=CHECKS, timeout=30).status_code)

    keeps()
