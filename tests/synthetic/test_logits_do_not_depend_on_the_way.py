"""A row's logits are the same bits alone or in a batch, in any chunks, on any threads and instruction set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgeseek import _core
from edgeseek.quantize.schemes import Scheme
from edgeseek.runtime.backend import Slice
from tests.make_models.tiny import CASES, prompt_ids
from tests.synthetic.models import backend_of, logits_of, package_of

LENGTH = 100
#: (threads, tokens per chunk): 5 threads are more than most test machines have cores.
WAYS = [(1, 1), (1, 7), (1, 64), (1, LENGTH), (2, 7), (2, LENGTH), (5, 7), (5, LENGTH)]
GROUPED = ["llama-tied", "qwen2-untied", "qwen2-sliding-window", "llama-biases", "qwen3-yarn-rope"]
SHAPES = [*GROUPED, "deepseek-v2-low-rank-queries", "deepseek-v3-experts"]
SCHEMES: list[Scheme] = ["f32", "f16", "q8", "q4"]


def bits(values: npt.NDArray[np.float32]) -> bytes:
    return values.tobytes()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", SHAPES)
def test_chunks_threads_and_instruction_sets_give_the_same_bits(
    name: str, scheme: Scheme, tmp_path: Path
) -> None:
    case = CASES[name]
    ids = prompt_ids(case, LENGTH)
    with package_of(case, tmp_path, scheme) as package:
        whole = bits(logits_of(backend_of(package, LENGTH, threads=1), ids))
        for isa in _core.supported_isas():
            for threads, chunk in WAYS:
                backend = backend_of(package, LENGTH, threads=threads, isa=isa)
                chunks = [chunk] * -(-LENGTH // chunk)
                assert bits(logits_of(backend, ids, chunks)) == whole, (isa, threads, chunk)


@pytest.mark.parametrize("name", GROUPED)
def test_an_int8_cache_gives_the_same_bits_every_way(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    ids = prompt_ids(case, LENGTH)
    with package_of(case, tmp_path, "q8") as package:
        whole = logits_of(backend_of(package, LENGTH, threads=1, kv="int8"), ids)
        exact = logits_of(backend_of(package, LENGTH, threads=1), ids)
        assert 0 < np.abs(whole - exact).max() < 0.1 * np.abs(exact).max()
        for isa in _core.supported_isas():
            for threads, chunk in WAYS:
                backend = backend_of(package, LENGTH, threads=threads, isa=isa, kv="int8")
                chunks = [chunk] * -(-LENGTH // chunk)
                assert bits(logits_of(backend, ids, chunks)) == bits(whole), (isa, threads, chunk)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", SHAPES)
def test_a_batch_of_eight_gives_each_the_bits_it_gets_alone(
    name: str, scheme: Scheme, tmp_path: Path
) -> None:
    case = CASES[name]
    prompts = [prompt_ids(case, LENGTH)[i : i + 40 + 6 * i] for i in range(8)]
    with package_of(case, tmp_path, scheme) as package:
        backend = backend_of(package, 8 * 128)
        alone = [bits(logits_of(backend, prompt)[-3:]) for prompt in prompts]
        tables = [[4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] for i in range(8)]
        # All but the last two tokens together, then one decode for each, twice.
        backend.forward([Slice(p[:-2], 0, t, "last") for p, t in zip(prompts, tables, strict=True)])
        steps = [
            backend.forward([Slice([p[i]], len(p) + i, t) for p, t in zip(prompts, tables, strict=True)])
            for i in (-2, -1)
        ]
        for i, rows in enumerate(alone):
            together = b"".join(bits(step[i]) for step in steps)
            assert together == rows[len(rows) // 3 :]


@pytest.mark.parametrize("length", [7, 8, 9, 17])
@pytest.mark.parametrize("chunk", [1, 3, 8, 9])
def test_a_window_of_eight_sees_exactly_the_last_eight_positions(
    length: int, chunk: int, tmp_path: Path
) -> None:
    # One layer, so that nothing older reaches the last position through another layer.
    case = CASES["qwen2-sliding-window"]
    single = type(case)(
        **{**vars(case), "layers": 1, "extra": {**case.extra, "max_window_layers": 0}},
    )
    ids = prompt_ids(case, length)
    chunks = [chunk] * -(-length // chunk)
    with package_of(single, tmp_path) as package:
        backend = backend_of(package, 32)
        last = bits(logits_of(backend, ids, chunks)[-1])
        for position in range(length):
            changed = list(ids)
            changed[position] = ids[position] % 300 + 5
            assert changed[position] != ids[position]
            seen = bits(logits_of(backend, changed, chunks)[-1]) != last
            assert seen == (position >= length - 8), position
