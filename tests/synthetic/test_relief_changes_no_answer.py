"""What the engine gives up under memory pressure is really given up, and running requests never notice."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgeseek.engine import Engine, Generation, SamplingParams
from edgeseek.engine.relief import EngineRelief
from edgeseek.errors import OverloadedError, RuntimeFailure
from edgeseek.package import Package
from edgeseek.runtime import pages
from edgeseek.runtime.native import NativeBackend
from tests.make_models import tiny_experts
from tests.make_models.tiny import CASES, TinyModel
from tests.synthetic.models import logits_of, package_folder, package_of
from tests.unit.engine.fake_backend import FakeTokenizer

#: Blocks of 48 KiB, so that pages lie wholly inside.
WIDE = TinyModel("wide", "llama", 91, 128, 192, 6, 6, 64, layers=4)
PAGE = mmap.PAGESIZE
LONG = SamplingParams(max_tokens=150, ignore_eos=True)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Package]:
    with package_of(WIDE, tmp_path_factory.mktemp("wide"), "q8") as package:
        yield package


@pytest.fixture
def backend(package: Package) -> Iterator[NativeBackend]:
    backend = NativeBackend(package, blocks=48, threads=2, preload="none")
    yield backend
    backend.close()


@pytest.fixture
def engine(backend: NativeBackend) -> Iterator[Engine]:
    with Engine(backend, FakeTokenizer(), context=256, slots=4, check_invariants=True) as engine:
        yield engine


def prompt(seed: int, length: int = 40) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(4, 300, length)]


def tokens_of(generation: Generation) -> tuple[int, ...]:
    return generation.join().token_ids


def test_free_blocks_pages_go_and_used_ones_stay(backend: NativeBackend) -> None:
    ids = prompt(1, 64)
    before = logits_of(backend, ids)
    used = [backend.num_blocks - 1, backend.num_blocks - 2]
    pool = backend._pool
    assert pool.block_bytes > 2 * PAGE
    free = [block for block in range(backend.num_blocks) if block not in used]
    # Nothing was ever written there, but a huge page may have brought them in.
    assert backend.release_blocks(free) <= len(free) * pool.block_bytes
    assert backend.release_blocks(free) == 0
    again = logits_of(backend, ids)
    np.testing.assert_array_equal(before.view(np.uint32), again.view(np.uint32))
    given = backend.release_blocks(used)
    assert 2 * pool.block_bytes - 2 * PAGE <= given <= 2 * pool.block_bytes + PAGE
    assert backend.release_blocks(used) == 0
    # They can be written again.
    np.testing.assert_array_equal(before.view(np.uint32), logits_of(backend, ids).view(np.uint32))


@pytest.mark.parametrize("block", [-1, 48, 1 << 40])
def test_a_block_that_there_is_not_is_refused(backend: NativeBackend, block: int) -> None:
    with pytest.raises(RuntimeFailure, match="were not released"):
        backend.release_blocks([0, block])


def test_finished_requests_are_dropped_and_their_pages_given_back(engine: Engine) -> None:
    relief = EngineRelief(engine)
    first = tokens_of(engine.submit(prompt(2), LONG))
    assert relief.drop_prefix_cache() == "6 KV blocks of finished requests are free"
    assert relief.drop_prefix_cache() == ""
    assert "bytes of free KV blocks given back" in relief.release_kv_pages()
    assert relief.release_kv_pages() == ""
    assert tokens_of(engine.submit(prompt(2), LONG)) == first


def test_running_requests_give_the_same_bits_through_all_steps(engine: Engine) -> None:
    expected = [tokens_of(engine.submit(prompt(seed), LONG)) for seed in range(3)]
    relief = EngineRelief(engine)
    relief.drop_prefix_cache()
    running = [engine.submit(prompt(seed), LONG) for seed in range(3)]
    for generation in running:
        next(generation)
    relief.stop_admitting("full")
    for _ in range(5):
        relief.drop_prefix_cache()
        relief.release_kv_pages()
        relief.page_out_weights()
    relief.shrink_slots()
    answers = [generation.join().token_ids for generation in running]
    # The first chunk was taken already.
    assert [answer[-149:] for answer in answers] == [tokens[-149:] for tokens in expected]


def test_new_requests_are_refused_with_the_reason_until_admitted_again(engine: Engine) -> None:
    relief = EngineRelief(engine)
    assert relief.stop_admitting("no memory; try again later") == "new requests are refused"
    with pytest.raises(OverloadedError, match="no memory; try again later"):
        engine.submit(prompt(3), LONG)
    relief.admit_again()
    assert len(tokens_of(engine.submit(prompt(3), SamplingParams(max_tokens=3, ignore_eos=True)))) == 3


def test_slots_are_halved_and_restored(engine: Engine) -> None:
    relief = EngineRelief(engine)
    slots = lambda: engine.between_steps(lambda scheduler, _: scheduler.slots)  # noqa: E731
    assert relief.shrink_slots() == "2 of 4 requests run at once"
    assert relief.shrink_slots() == "1 of 4 requests run at once"
    assert relief.shrink_slots() == ""
    assert slots() == 1
    relief.restore_slots()
    assert slots() == 4
    relief.restore_slots()
    assert slots() == 4


def test_the_newest_request_ends_with_the_reason_and_the_older_go_on(engine: Engine) -> None:
    expected = tokens_of(engine.submit(prompt(4), LONG))
    older, newest = engine.submit(prompt(4), LONG), engine.submit(prompt(5), LONG)
    next(newest)
    relief = EngineRelief(engine)
    assert relief.end_newest("out of memory") == "the newest request was ended; its prompt had 40 tokens"
    with pytest.raises(OverloadedError, match="out of memory") as caught:
        newest.join()
    assert caught.value.started
    assert older.join().token_ids == expected
    assert relief.end_newest("out of memory") == ""


def test_idle_weights_leave_memory_and_come_back_the_same(package: Package, tmp_path: Path) -> None:
    backend = NativeBackend(package, blocks=4, threads=1, preload="none")
    ids = prompt(6)
    before = logits_of(backend, ids)
    embedding = package.tensors["embed.weight"].data
    assert pages.resident_bytes(embedding) > 0
    given = backend.page_out_weights()
    if given == 0:
        pytest.skip("this kernel or file system does not page out mapped files (MADV_PAGEOUT, Linux 5.4)")
    assert pages.resident_bytes(embedding) == 0
    np.testing.assert_array_equal(before.view(np.uint32), logits_of(backend, ids).view(np.uint32))
    backend.close()


def test_experts_in_use_stay_and_idle_ones_go(tmp_path: Path) -> None:
    folder = tiny_experts.write(tiny_experts.CASES["greedy"], tmp_path / "folder")
    with package_folder(folder, tmp_path / "package", "f32") as package:
        backend = NativeBackend(package, blocks=4, threads=1, preload="none")
        logits_of(backend, [5])
        steps = backend._runner.expert_steps()
        moe = package.config.moe
        assert moe is not None
        assert len(steps) == package.config.num_layers * moe.num_experts
        used = [place for place, step in enumerate(steps) if step]
        layers = sum(package.config.has_experts(i) for i in range(package.config.num_layers))
        assert len(used) == layers * moe.experts_per_token
        for place in used:
            layer, expert = divmod(place, moe.num_experts)
            assert package.config.has_experts(layer)
            assert any(
                f"layers.{layer}." in name and f"experts.{expert}." in name for name in package.tensors
            )
        assert set(backend._expert_data) == {
            layer * moe.num_experts + expert
            for layer in range(package.config.num_layers)
            if package.config.has_experts(layer)
            for expert in range(moe.num_experts)
        }
        backend.close()


@pytest.mark.parametrize("preload", ["copy"])
def test_weights_that_are_no_pages_of_a_file_are_left_alone(package: Package, preload: str) -> None:
    backend = NativeBackend(package, blocks=4, threads=1, preload=preload)  # type: ignore[arg-type]
    assert backend.page_out_weights() == 0
    backend.close()


def test_a_tied_embedding_is_the_head_and_stays(tmp_path: Path) -> None:
    with package_of(CASES["llama-tied"], tmp_path, "q8") as package:
        backend = NativeBackend(package, blocks=4, threads=1, preload="none")
        assert backend._lookup_data == []
        backend.close()


def test_a_guard_ends_with_its_model(tmp_path: Path) -> None:
    import threading

    from edgeseek.llm import LLM
    from edgeseek.settings import Settings
    from tests.make_models.tiny import write

    def guards() -> int:
        return sum(thread.name == "edgeseek-memory-guard" for thread in threading.enumerate())

    folder = write(CASES["llama-tied"], tmp_path / "tiny")
    settings = Settings(cache_dir=tmp_path / "cache")
    with LLM.load(folder, settings=settings, threads=1) as llm:
        guard = llm.guard_memory(settings)
        assert guards() == 1
        assert guard.in_force == ()
        assert len(llm.generate([5, 6], SamplingParams(max_tokens=3, ignore_eos=True)).join().token_ids) == 3
    assert guards() == 0
