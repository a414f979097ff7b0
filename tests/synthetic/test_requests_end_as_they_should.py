"""Finish reasons, stop texts and tokens, lengths, cancellation and errors, through the whole engine."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from edgeseek.engine import Chunk, Completion, Engine, SamplingParams
from edgeseek.errors import PromptTooLongError, RuntimeFailure, UsageError
from edgeseek.runtime.backend import Sample, SampleRow, Slice
from tests.unit.engine.fake_backend import EOS, FakeBackend, FakeTokenizer, ScriptedBackend

ENDLESS = SamplingParams(ignore_eos=True)


def scripted(pieces: Sequence[bytes], script: Sequence[int], params: SamplingParams) -> list[Chunk]:
    """Chunks of an engine whose model draws the pieces numbered by `script`."""
    with Engine(ScriptedBackend(script), FakeTokenizer(pieces)) as engine:
        return list(engine.submit([0], params))


def test_a_stop_text_over_four_tokens_ends_with_the_text_before_it() -> None:
    pieces = [b"alpha", b" be", b"ta ga", b"mma delta", b"never"]
    chunks = scripted(pieces, range(5), SamplingParams(stop="beta gamma"))
    assert [c.text for c in chunks] == ["alpha", " ", "", ""]
    assert (chunks[-1].finish_reason, chunks[-1].matched) == ("stop", "beta gamma")
    assert [t for c in chunks for t in c.token_ids] == [0, 1, 2, 3]


def test_text_held_for_a_stop_text_leaves_when_it_turns_out_another() -> None:
    chunks = scripted([b"DEF", b"G", b"HI", b"X"], [*range(4), EOS], SamplingParams(stop="DEFGHIJ"))
    assert [c.text for c in chunks] == ["", "", "", "DEFGHIX", ""]


def test_text_held_for_a_stop_text_leaves_with_the_end_of_sequence() -> None:
    chunks = scripted([b"DEF"], [0, EOS], SamplingParams(stop="DEFGHIJ"))
    assert "".join(c.text for c in chunks) == "DEF"
    assert (chunks[-1].finish_reason, chunks[-1].matched, chunks[-1].token_ids) == ("stop", EOS, ())


def test_text_held_for_a_stop_text_leaves_with_the_last_token_allowed() -> None:
    chunks = scripted([b"DEF", b"G"], [0, 1], SamplingParams(stop="DEFGHIJ", max_tokens=2))
    assert [c.text for c in chunks] == ["", "DEFG"]
    assert chunks[-1].finish_reason == "length"


def test_a_character_over_several_tokens_leaves_when_it_is_complete_and_cut_short_as_one_mark() -> None:
    pieces = [b"\xf0\x9f", b"\x98", b"\x80 \xe4", b"\xbd\xa0", b"\xe5\xa5"]
    chunks = scripted(pieces, [*range(5), EOS], SamplingParams())
    assert [c.text for c in chunks] == ["", "", "\U0001f600 ", "你", "", "\ufffd"]


def test_stop_token_ids_end_like_the_models_own() -> None:
    chunks = scripted([b"a", b"b", b"c"], [0, 1, 2], SamplingParams(stop_token_ids=[1]))
    assert "".join(c.text for c in chunks) == "a"
    assert (chunks[-1].finish_reason, chunks[-1].matched) == ("stop", 1)


def test_ignore_eos_goes_on_and_shows_nothing_of_it() -> None:
    chunks = scripted([b"a", b"b"], [0, EOS, 1], SamplingParams(ignore_eos=True, max_tokens=3))
    assert [c.text for c in chunks] == ["a", "", "b"]
    assert [t for c in chunks for t in c.token_ids] == [0, EOS, 1]


def test_unless_streamed_one_chunk_has_everything() -> None:
    with Engine(ScriptedBackend([0, 1, EOS]), FakeTokenizer([b"a", b"b"])) as engine:
        (chunk,) = engine.submit([0], SamplingParams(), stream=False)
    assert (chunk.text, chunk.token_ids, chunk.finish_reason) == ("ab", (0, 1), "stop")


def test_without_max_tokens_it_goes_on_until_the_context_is_full() -> None:
    with Engine(FakeBackend(), FakeTokenizer(), context=100) as engine:
        completion = engine.submit(range(40), ENDLESS).join()
        assert (len(completion.token_ids), completion.finish_reason) == (60, "length")
        full = engine.submit([1] * 100, ENDLESS).join()
        assert (len(full.token_ids), full.finish_reason) == (1, "length")


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers() -> None:
    engine = Engine(FakeBackend(), FakeTokenizer(), context=100)
    with engine, pytest.raises(PromptTooLongError) as caught:
        engine.submit([1] * 101, ENDLESS)
    assert (caught.value.prompt_tokens, caught.value.context) == (101, 100)


@pytest.mark.parametrize(
    ("prompt", "params", "match"),
    [
        ([], SamplingParams(), "the prompt is empty"),
        ([61], SamplingParams(), "the prompt holds token 61; the vocabulary has 61"),
        ([1, -1], SamplingParams(), "the prompt holds token -1"),
        ([1], SamplingParams(logit_bias={99: 1.0}), "logit_bias holds token 99"),
    ],
)
def test_what_the_backend_could_not_run_is_refused_before(
    prompt: list[int], params: SamplingParams, match: str
) -> None:
    with Engine(FakeBackend(), FakeTokenizer()) as engine, pytest.raises(UsageError, match=match):
        engine.submit(prompt, params)


@pytest.mark.parametrize("options", [{"slots": 0}, {"slots": 9, "step_tokens": 8}, {"context": 99999}])
def test_sizes_that_contradict_each_other_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Engine(FakeBackend(), FakeTokenizer(), **options)  # type: ignore[arg-type]


def test_a_cancelled_request_ends_with_what_it_had_and_the_others_go_on() -> None:
    with Engine(FakeBackend(), FakeTokenizer()) as engine:
        one, two = (
            engine.submit([1], ENDLESS),
            engine.submit([2], SamplingParams(max_tokens=50, ignore_eos=True)),
        )
        next(one)
        one.cancel()
        *_, last = one
        assert last.finish_reason == "cancelled"
        assert last.timings is not None
        assert len(two.join().token_ids) == 50
        one.cancel()


def test_leaving_the_loop_cancels() -> None:
    backend = FakeBackend()
    with Engine(backend, FakeTokenizer(), retain=False) as engine:
        for _ in engine.submit([1], ENDLESS):
            break
        whole_pool = engine.borrow(backend.num_blocks, lambda _, blocks: len(blocks))
    assert whole_pool == backend.num_blocks


class Failing(FakeBackend):
    """Fails the forward passes that hold token `bad`; makes a NaN of what follows token `nan`."""

    bad, nan = 50, 51

    def forward(self, batch: Sequence[Slice]) -> npt.NDArray[np.float32]:
        if any(self.bad in part.tokens for part in batch):
            raise RuntimeFailure("the core gave up")
        logits = super().forward(batch)
        drawing = [part for part in batch if part.logits == "last"]
        for i, part in enumerate(drawing):
            if part.tokens[-1] == self.nan:
                logits[i, 3] = np.nan
        return logits


def test_a_failed_step_ends_its_requests_with_the_reason_and_the_engine_goes_on() -> None:
    backend = Failing()
    params = SamplingParams(max_tokens=5, ignore_eos=True, logit_bias={50: -100.0, 51: -100.0})
    with Engine(backend, FakeTokenizer(), check_invariants=True) as engine:
        with pytest.raises(RuntimeFailure, match="the core gave up"):
            engine.submit([1, 50, 2], params).join()
        assert len(engine.submit([1, 2], params).join().token_ids) == 5
        assert engine.borrow(backend.num_blocks, lambda _, blocks: len(blocks)) == backend.num_blocks


def test_a_row_that_cannot_be_sampled_ends_only_its_request() -> None:
    params = SamplingParams(max_tokens=5, ignore_eos=True, logit_bias={50: -100.0, 51: -100.0})
    with Engine(Failing(), FakeTokenizer(), check_invariants=True) as engine:
        hold = threading.Event()
        # Everything is submitted while the engine is kept busy, so that one step has all three.
        holder = threading.Thread(target=lambda: engine.borrow(1, lambda *_: hold.wait(10)))
        holder.start()
        running = [engine.submit(prompt, params) for prompt in ([1], [51], [2])]
        hold.set()
        holder.join()
        assert len(running[0].join().token_ids) == 5
        with pytest.raises(RuntimeFailure, match="logit 3 is not finite"):
            running[1].join()
        assert len(running[2].join().token_ids) == 5


def test_what_borrowed_work_raises_reaches_its_caller_and_the_blocks_come_back() -> None:
    def work(_backend: object, _blocks: list[int]) -> None:
        raise TimeoutError("too slow")

    backend = FakeBackend()
    with Engine(backend, FakeTokenizer()) as engine:
        with pytest.raises(TimeoutError, match="too slow"):
            engine.borrow(5, work)
        with pytest.raises(RuntimeFailure, match="65 KV blocks are needed and 64 are free"):
            engine.borrow(65, work)
        assert engine.borrow(64, lambda _, blocks: len(blocks)) == 64


def test_closing_ends_what_runs_with_an_error_and_refuses_more() -> None:
    engine = Engine(FakeBackend(), FakeTokenizer())
    generation = engine.submit([1], ENDLESS)
    next(generation)
    engine.close()
    engine.close()
    with pytest.raises(RuntimeFailure, match="the engine was closed"):
        list(generation)
    with pytest.raises(RuntimeFailure, match="the engine is closed"):
        engine.submit([1], ENDLESS)
    generation.cancel()


def test_many_threads_may_submit_at_once() -> None:
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    results: dict[int, Completion] = {}
    with Engine(FakeBackend(), FakeTokenizer(), check_invariants=True) as engine:

        def ask(number: int) -> None:
            results[number] = engine.submit([number], params).join()

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Engine(FakeBackend(), FakeTokenizer()) as engine:
        for number in range(20):
            assert engine.submit([number], params).join().token_ids == results[number].token_ids


def test_a_seed_gives_the_same_tokens_and_the_drawn_one_is_reported() -> None:
    params = SamplingParams(temperature=1.0, max_tokens=30, ignore_eos=True)
    with Engine(FakeBackend(), FakeTokenizer()) as engine:
        first = engine.submit([1, 2], params).join()
        second = engine.submit([1, 2], params).join()
        again = engine.submit([1, 2], params.with_changes(seed=first.seed)).join()
    assert first.token_ids != second.token_ids
    assert again.token_ids == first.token_ids


def test_logprobs_come_with_each_token_when_asked_for() -> None:
    with Engine(FakeBackend(), FakeTokenizer()) as engine:
        got = engine.submit([1], SamplingParams(max_tokens=3, ignore_eos=True, logprobs=2)).join()
        none = engine.submit([1], SamplingParams(max_tokens=3, ignore_eos=True)).join()
    assert [p.token_id for p in got.logprobs] == list(got.token_ids)
    assert all(p.top[0] == (p.token_id, p.logprob) and len(p.top) == 2 for p in got.logprobs)
    assert none.logprobs == ()


class StepClock(FakeBackend):
    """A clock that stands still but for a second in each forward pass."""

    now = 100.0

    def forward(self, batch: Sequence[Slice]) -> npt.NDArray[np.float32]:
        self.now += 1.0
        return super().forward(batch)


def test_timings_say_where_the_time_went() -> None:
    backend = StepClock()
    with Engine(backend, FakeTokenizer(), step_tokens=64, clock=lambda: backend.now) as engine:
        completion = engine.submit([1] * 150, SamplingParams(max_tokens=5, ignore_eos=True)).join()
    t = completion.timings
    assert (t.queue_s, t.prefill_s, t.decode_s, t.first_token_s, t.total_s) == (0.0, 3.0, 4.0, 3.0, 7.0)
    assert (t.prompt_tokens, t.cached_tokens, t.completion_tokens, t.decode_tokens) == (150, 0, 5, 4)
    assert (t.prefill_tokens_per_s, t.decode_tokens_per_s) == (50.0, 1.0)


class CountingRows(FakeBackend):
    """Counts the rows of each `sample` call."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def sample(self, logits: npt.NDArray[np.float32], rows: Sequence[SampleRow]) -> list[Sample]:
        self.rows.append(len(rows))
        return super().sample(logits, rows)


def test_a_chunk_that_does_not_end_its_prompt_is_not_sampled() -> None:
    backend = CountingRows()
    with Engine(backend, FakeTokenizer(), step_tokens=32) as engine:
        engine.submit([1] * 100, SamplingParams(max_tokens=2, ignore_eos=True)).join()
    assert backend.rows == [1, 1]
    assert [part.logits for part in itertools.chain(*backend.batches)] == ["none"] * 3 + ["last"] * 2
