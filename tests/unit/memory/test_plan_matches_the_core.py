"""What the planner computes is what the core allocates."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeseek import _core
from edgeseek.memory import planner
from edgeseek.runtime.native import NativeBackend
from tests.make_models.tiny import CASES
from tests.synthetic.models import package_of


@pytest.mark.parametrize("name", sorted(CASES))
def test_work_buffers_and_the_pool_take_exactly_what_was_planned(name: str, tmp_path: Path) -> None:
    with package_of(CASES[name], tmp_path) as package:
        backend = NativeBackend(package, blocks=7, threads=1, max_step_tokens=24)
        runner, pool = backend._runner, backend._pool
        wider = _core.Runner(backend._model, pool, _core.ThreadPool(2), None, 24)
        per_thread = wider.buffer_bytes - runner.buffer_bytes
        assert planner.work_bytes(package.config, 24) == runner.buffer_bytes - per_thread
        assert per_thread <= planner.THREAD_BYTES
        assert pool.bytes == 7 * planner.KV_BLOCK_TOKENS * planner.kv_bytes_per_token(package.config)
        int8 = NativeBackend(package, blocks=7, threads=1, max_step_tokens=24, kv="int8")._pool
        assert int8.bytes == 7 * planner.KV_BLOCK_TOKENS * planner.kv_bytes_per_token(package.config, "int8")
