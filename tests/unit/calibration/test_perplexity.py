"""Perplexity as defined: windows that do not overlap, each from position 0, its first token unscored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from edgeseek.calibration import perplexity
from edgeseek.calibration.perplexity import negative_log_likelihood
from edgeseek.engine import SamplingParams
from edgeseek.errors import RuntimeFailure, UsageError
from edgeseek.llm import LLM
from edgeseek.memory.limits import MemoryLimit, MemoryLimits
from edgeseek.memory.planner import plan
from edgeseek.runtime.backend import Slice
from tests.unit.engine.fake_backend import VOCAB, FakeBackend, FakeTokenizer


def llm_on(backend: FakeBackend, context: int = 256) -> LLM:
    limits = MemoryLimits((MemoryLimit("test", 1 << 34, 1 << 34),))
    return LLM(
        name="fake",
        backend=backend,
        tokenizer=FakeTokenizer(),  # type: ignore[arg-type]
        chat_template=None,
        generation_config={},
        plan=plan(backend.config, 0, limits=limits, context=context),
    )


def tokens(count: int) -> list[int]:
    return [int(i) for i in np.random.RandomState(3).randint(0, VOCAB, size=count)]


def expected(ids: Sequence[int], window: int) -> float:
    """Straight from the definition, one window at a time."""
    backend, total, scored = FakeBackend(), 0.0, 0
    for start in range(0, len(ids) - window + 1, window):
        part = ids[start : start + window]
        logits = backend.forward([Slice(part, 0, range(-(-window // 32)), "all")]).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        for i in range(window - 1):
            total -= logprobs[i, part[i + 1]]
            scored += 1
    return float(np.exp(total / scored))


@pytest.mark.parametrize(("window", "count"), [(2, 11), (33, 100), (64, 640), (100, 399), (256, 1000)])
def test_it_equals_the_definition_and_drops_the_last_partial_window(window: int, count: int) -> None:
    ids = tokens(count)
    with llm_on(FakeBackend()) as llm:
        result = perplexity(llm, ids, window)
    assert result.perplexity == pytest.approx(expected(ids, window), rel=1e-6)
    assert (result.windows, result.tokens) == (count // window, count // window * (window - 1))


class LimitedRows(FakeBackend):
    """Remembers the most rows of logits that one forward returned."""

    most = 0

    def forward(self, batch: Sequence[Slice]) -> npt.NDArray[np.float32]:
        logits = super().forward(batch)
        self.most = max(self.most, len(logits))
        return logits


def test_a_large_vocabulary_is_scored_in_few_rows_at_a_time_with_the_same_result() -> None:
    ids = tokens(300)
    wide = LimitedRows(vocab=150_000)
    with llm_on(wide) as llm:
        result = perplexity(llm, ids, 150)
    assert wide.most * 150_000 * 4 <= 40 << 20
    assert result.tokens == 298


def test_other_requests_and_all_blocks_are_unharmed() -> None:
    backend = FakeBackend()
    with llm_on(backend) as llm:
        alone = llm.complete([1, 2, 3], SamplingParams(max_tokens=100, ignore_eos=True))
        running = llm.generate([1, 2, 3], SamplingParams(max_tokens=100, ignore_eos=True))
        perplexity(llm, tokens(1000), 64)
        assert running.join().token_ids == alone.token_ids
        assert llm.engine.borrow(backend.num_blocks, lambda _, blocks: len(blocks)) == backend.num_blocks


def test_progress_counts_tokens() -> None:
    seen: list[tuple[str, int, int | None]] = []
    with llm_on(FakeBackend()) as llm:
        perplexity(llm, tokens(1000), 256, progress=lambda *args: seen.append(args))
    assert seen[-1] == ("perplexity", 768, 768)


def test_windows_and_texts_that_make_no_sense_are_refused() -> None:
    with llm_on(FakeBackend()) as llm:
        with pytest.raises(UsageError, match="at least 2"):
            perplexity(llm, tokens(10), 1)
        with pytest.raises(UsageError, match="the context holds 256"):
            perplexity(llm, tokens(1000), 300)
        with pytest.raises(UsageError, match="the text has 99 tokens, less than one window of 100"):
            perplexity(llm, tokens(99), 100)


def test_a_logit_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(RuntimeFailure, match="not finite"):
        negative_log_likelihood(np.array([[0.0, np.nan]], np.float32), np.array([0]))
