"""What the planner computes is what the core allocates."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeseek import _core
from edgeseek.architectures import LatentAttention, ModelConfig
from edgeseek.errors import UsageError
from edgeseek.memory import planner
from edgeseek.runtime.native import NativeBackend
from tests.make_models import tiny_experts
from tests.make_models.tiny import CASES
from tests.synthetic.models import package_folder, package_of


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
        if package.config.latent is not None:
            return
        int8 = NativeBackend(package, blocks=7, threads=1, max_step_tokens=24, kv="int8")._pool
        assert int8.bytes == 7 * planner.KV_BLOCK_TOKENS * planner.kv_bytes_per_token(package.config, "int8")


def test_a_latent_cache_of_int8_is_refused_by_the_plan_and_the_backend(tmp_path: Path) -> None:
    with package_of(CASES["deepseek-v2-plain-queries"], tmp_path) as package:
        with pytest.raises(UsageError, match="deepseek_v2 keeps latent vectors .* leave out --kv int8"):
            planner.kv_bytes_per_token(package.config, "int8")
        with pytest.raises(UsageError, match="f16 only"):
            NativeBackend(package, blocks=1, threads=1, kv="int8")


def test_a_token_of_v2_lite_takes_31104_bytes() -> None:
    latent = LatentAttention(rank=512, plain_dim=128, rotated_dim=64, value_dim=128)
    config = ModelConfig("deepseek_v2", 102400, 2048, 10944, 27, 16, 16, 192, 163840, 1e-6, latent=latent)
    assert planner.kv_bytes_per_token(config) == 31_104


@pytest.mark.parametrize("name", ["greedy", "greedy-scaled", "corrected-groups"])
def test_experts_take_the_work_buffers_that_were_planned(name: str, tmp_path: Path) -> None:
    folder = tiny_experts.write(tiny_experts.CASES[name], tmp_path / "folder")
    with package_folder(folder, tmp_path / "package", "q8") as package:
        backend = NativeBackend(package, blocks=7, threads=1, max_step_tokens=24)
        wider = _core.Runner(backend._model, backend._pool, _core.ThreadPool(2), None, 24)
        per_thread = wider.buffer_bytes - backend._runner.buffer_bytes
        assert planner.work_bytes(package.config, 24) == backend._runner.buffer_bytes - per_thread
        assert per_thread <= planner.THREAD_BYTES
