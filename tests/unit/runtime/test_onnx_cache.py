"""Whatever becomes of its blocks, a sequence finds its own keys and values, and memory is bounded."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'edgeseek[onnx]'")

from edgeseek.errors import RuntimeFailure
from edgeseek.runtime.onnx_cache import GRAIN, Cache, Caches

NAME = "past_key_values.0.key"


def run(cache: Cache, tokens: list[int], past: int, shared: bool) -> None:
    """A step of a model whose key of a token is the token."""
    import onnxruntime

    total = past + len(tokens)
    held = cache.tensors[NAME].numpy().copy()
    if not shared:
        held = np.concatenate([held[:, :, :past], np.zeros((1, 1, len(tokens), 1), np.float32)], axis=2)
    held[0, 0, past:total, 0] = tokens
    made = {NAME: onnxruntime.OrtValue.ortvalue_from_numpy(held)}
    if shared:
        assert cache.capacity >= total
        cache.tensors.update(made)
    cache.took({} if shared else made, total)


def held_by(cache: Cache) -> list[int]:
    values: Any = cache.tensors[NAME].numpy()[0, 0, : cache.length, 0]
    return [int(value) for value in values]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_sequences_never_see_each_other(shared: bool, seed: int) -> None:
    """Random growth, cuts, ends and new beginnings on a pool of 12 blocks, as the block manager hands out."""
    draw = random.Random(seed)
    caches = Caches([NAME], (1, 1), np.float32, shared)
    free = list(range(12))
    live: list[tuple[list[int], list[int]]] = []
    for _ in range(250):
        what = draw.random()
        if live and what < 0.15:
            _, table = live.pop(draw.randrange(len(live)))
            free += table
        elif live and what < 0.3:
            tokens, table = draw.choice(live)
            del tokens[draw.randrange(1, len(tokens) + 1) :]
            keep = -(-len(tokens) // 32)
            free += table[keep:]
            del table[keep:]
        else:
            if not live or what > 0.8:
                live.append(([], []))
            tokens, table = draw.choice(live)
            new = [draw.randrange(1000) for _ in range(draw.randrange(1, 90))]
            missing = -(-(len(tokens) + len(new)) // 32) - len(table)
            if missing > len(free):
                live = [entry for entry in live if entry[1]]
                continue
            draw.shuffle(free)
            table += [free.pop() for _ in range(missing)]
            cache = caches.of(table, len(tokens), len(tokens) + len(new))
            assert held_by(cache) == tokens
            run(cache, new, len(tokens), shared)
            tokens += new
            assert held_by(cache) == tokens
        live = [entry for entry in live if entry[1]]
        assert caches.positions <= 12 * (GRAIN if shared else 32)


def test_a_cut_gives_memory_back() -> None:
    caches = Caches([NAME], (1, 1), np.float32, shared=True)
    run(caches.of(range(20), 0, 600), list(range(600)), 0, shared=True)
    assert caches.positions == 3 * GRAIN
    # Another sequence begins in the ninth block of the first, which has 256 positions then.
    run(caches.of([8], 0, 3), [1, 2, 3], 0, shared=True)
    assert caches.positions == 2 * GRAIN
    assert held_by(caches.of(range(8), 256, 256)) == list(range(256))


def test_a_sequence_that_lost_its_first_block_is_not_known() -> None:
    caches = Caches([NAME], (1, 1), np.float32, shared=False)
    run(caches.of([4, 5], 0, 40), list(range(40)), 0, shared=False)
    run(caches.of([3, 4], 0, 40), list(range(40)), 0, shared=False)
    with pytest.raises(RuntimeFailure, match="not known"):
        caches.of([4, 5], 40, 41)
