"""The core draws exactly the token that sorting everything in numpy gives, over the whole chain."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgeseek.runtime.backend import Sample, SampleRow
from tests.unit.engine import reference_sampler

core = pytest.importorskip("edgeseek._core")

NONE = np.zeros(0, np.int32)


def native(logits: npt.NDArray[np.float32], row: SampleRow) -> Sample:
    fields: dict[str, Any] = {name: getattr(row, name) for name in SampleRow.__dataclass_fields__}
    token, logprob, top_ids, top_logprobs = core.sample(logits, **fields)
    return Sample(token, logprob, tuple(top_ids), tuple(top_logprobs))


def random_row(draw: np.random.RandomState, vocab: int) -> SampleRow:
    def some_ids() -> npt.NDArray[np.int32]:
        return draw.permutation(vocab)[: draw.randint(0, min(vocab, 50))].astype(np.int32)

    output, bias = some_ids(), some_ids()[: vocab - 1]
    values = draw.uniform(-5, 5, len(bias)).astype(np.float32)
    values[draw.uniform(size=len(bias)) < 0.1] = -math.inf
    return SampleRow(
        temperature=draw.choice([0.0, 0.1, 0.7, 1.0, 3.0]),
        top_k=int(draw.choice([0, 0, 1, 5, 40, vocab, 10**6])),
        top_p=draw.choice([1.0, 0.99, 0.9, 0.5, 0.01]),
        min_p=draw.choice([0.0, 0.0, 0.02, 0.3, 1.0]),
        repetition_penalty=draw.choice([1.0, 1.1, 1.7, 0.8]),
        presence_penalty=draw.choice([0.0, 0.5, -1.0]),
        frequency_penalty=draw.choice([0.0, 0.25, -0.5]),
        seen_ids=some_ids(),
        output_ids=output,
        output_counts=draw.randint(1, 9, len(output)).astype(np.int32),
        bias_ids=bias,
        bias_values=values,
        seed=int(draw.randint(0, 2**32, dtype=np.uint64)) << 31,
        position=int(draw.randint(0, 2**31)),
        top_logprobs=int(draw.choice([-1, 0, 5])),
    )


SHAPES: dict[str, Callable[[np.random.RandomState, int], npt.NDArray[np.float64]]] = {
    "usual": lambda draw, vocab: draw.normal(0, 3, vocab),
    "peaked": lambda draw, vocab: np.where(np.arange(vocab) % 97 == 5, 15.0, draw.normal(0, 2, vocab)),
    "flat": lambda draw, vocab: draw.normal(0, 0.01, vocab),
    "ties": lambda draw, vocab: draw.randint(-3, 3, vocab).astype(np.float64),
    "wide": lambda draw, vocab: draw.normal(0, 200, vocab),
    "equal": lambda _draw, vocab: np.full(vocab, -7.5),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_thousands_of_random_rows(shape: str) -> None:
    draw = np.random.RandomState(sum(map(ord, shape)))
    for _ in range(500):
        vocab = int(draw.choice([2, 15, 16, 17, 100, 1000, 4096]))
        logits = SHAPES[shape](draw, vocab).astype(np.float32)
        row = random_row(draw, vocab)
        expected, got = reference_sampler.sample(logits, row), native(logits, row)
        assert (got.token, got.top_ids) == (expected.token, expected.top_ids), row
        assert got.logprob == pytest.approx(expected.logprob, abs=2e-6)
        assert got.top_logprobs == pytest.approx(expected.top_logprobs, abs=2e-6)


def test_a_vocabulary_of_qwens_size() -> None:
    draw = np.random.RandomState(1)
    for _ in range(20):
        logits = draw.normal(0, 3, 151_936).astype(np.float32)
        row = random_row(draw, len(logits))
        assert native(logits, row).token == reference_sampler.sample(logits, row).token


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_refused(bad: float) -> None:
    logits = np.zeros(40, np.float32)
    logits[33] = bad
    with pytest.raises(ValueError, match="logit 33 is"):
        native(logits, random_row(np.random.RandomState(0), 40))
