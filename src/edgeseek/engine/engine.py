"""The step loop: schedule → run → postprocess, on one thread.

Owns the backend's use and every sequence's life. `submit`, `cancel` and `borrow` may be called from any
thread; they leave word in an inbox that the engine thread reads between steps. Knows nothing of chat
templates, files or HTTP.

Whatever a step raises, a backend's own error types included, ends only the requests it concerns, and the
loop goes on: that is why the six handlers here catch every Exception.
"""

from __future__ import annotations

import atexit
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection
from collections.abc import Sequence as Items
from concurrent import futures
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from edgeseek.engine.grammar import Constraint
from edgeseek.engine.outputs import Chunk, FinishReason, TokenLogprob
from edgeseek.engine.params import SamplingParams
from edgeseek.engine.request import POLL_S, Generation, Request
from edgeseek.engine.sampler import SamplingState
from edgeseek.engine.scheduler import Scheduled, Scheduler
from edgeseek.engine.sequence import Sequence
from edgeseek.engine.speculative import PromptLookup, StepCosts
from edgeseek.engine.stopping import StopRules
from edgeseek.engine.text import TextSource, TextStream
from edgeseek.errors import EdgeseekError, OverloadedError, PromptTooLongError, RuntimeFailure, UsageError
from edgeseek.runtime.backend import BLOCK_TOKENS, Backend, Sample, SampleRow

#: Tokens of prompt and decode in one step, at most.
STEP_TOKENS = 512
#: Sequences that may run at once.
SLOTS = 8

T = TypeVar("T")


class Engine:
    """Runs many requests at once on one backend.

    `context` caps the tokens of a sequence (default: what the pool and the model hold). `retain` keeps
    the KV of finished sequences for later requests that begin alike. `speculate` proposes tokens from a
    sequence's own text and verifies several in one step; answers are the same with it and without.
    `check_invariants` verifies the block books after every step (for tests and debugging). Close it, or
    use `with`; the backend stays the caller's.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: TextSource,
        *,
        context: int | None = None,
        slots: int = SLOTS,
        step_tokens: int = STEP_TOKENS,
        eos_token_ids: Collection[int] | None = None,
        retain: bool = True,
        speculate: bool = True,
        check_invariants: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        pool = backend.num_blocks * BLOCK_TOKENS
        self.context = min(pool, backend.config.max_context) if context is None else context
        if not 1 <= self.context <= pool:
            raise UsageError(f"a context of {self.context} tokens needs a KV pool that holds it, not {pool}")
        if not 1 <= slots <= step_tokens:
            raise UsageError(f"slots is {slots}; it must be from 1 to the {step_tokens} tokens of a step")
        if backend.capabilities.prefix_sharing and not backend.capabilities.paged:
            raise UsageError("a backend that does not page its KV cannot share blocks between sequences")
        self._backend = backend
        self._tokenizer = tokenizer
        self.eos_token_ids = frozenset(
            backend.config.eos_token_ids if eos_token_ids is None else eos_token_ids
        )
        self._check_invariants = check_invariants
        self._clock = clock
        self._slots = slots
        self._step_tokens = step_tokens
        self._retain = retain
        self._costs = StepCosts() if speculate and backend.capabilities.rollback else None
        self._scheduler = self._new_scheduler()
        self._requests: dict[int, Request] = {}
        self._ids = itertools.count()
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        #: Why new requests are refused at present; None where they are admitted.
        self.refusal: str | None = None
        #: Called on the engine's thread when a step's chunks, or those of other events, are all delivered.
        self.after_delivery: Callable[[], None] = _nothing
        self._thread = threading.Thread(target=self._run, name="edgeseek-engine", daemon=True)
        self._thread.start()
        # A daemon thread inside native code must not outlive the interpreter.
        atexit.register(_close, weakref.ref(self))

    def submit(
        self,
        prompt: Items[int],
        params: SamplingParams,
        *,
        stream: bool = True,
        owner: object = None,
        salt: bytes = b"",
        constraint: Constraint | None = None,
        deliver: Callable[[Chunk | BaseException], None] | None = None,
    ) -> Generation:
        """Queue a prompt of token ids and return its chunks as an iterator (one joined one unless `stream`).

        `owner` is kept alive as long as the iterator is. Only requests of one `salt` go on from each
        other's prefixes, so that one client cannot learn what another sent. `constraint`, a fresh
        one, holds the output to a grammar. With `deliver` nothing is to be read from the iterator, which
        then only cancels: each chunk, or the error that ends the request, is
        handed to it on the engine's thread.
        Raises PromptTooLongError, UsageError for an empty prompt or ids outside the vocabulary, or
        OverloadedError while no requests are admitted. A prompt that fills the context exactly still gets
        one token, since the last needs no KV.
        """
        if self.refusal is not None:
            raise OverloadedError(self.refusal)
        tokens = [int(token) for token in prompt]
        self._validate(tokens, params)
        room = max(self.context - len(tokens), 1)
        limit = room if params.max_tokens is None else min(params.max_tokens, room)
        sequence = Sequence(
            id=next(self._ids),
            tokens=tokens,
            sampling=SamplingState(params, tokens),
            stopping=StopRules(params, self.eos_token_ids, limit),
            lookup=None if self._costs is None else PromptLookup(tokens),
            salt=salt,
            constraint=constraint,
        )
        text = TextStream(self._tokenizer, params.stop)
        request = Request(sequence, text, self._clock(), deliver=deliver)
        self._post(lambda: self._admit(request))
        return Generation(
            request, cancel=self.cancel, is_alive=self._thread.is_alive, stream=stream, owner=owner
        )

    def cancel(self, request: Request) -> None:
        """End a request with finish reason "cancelled" before the next step; no effect once it ended."""
        with self._wake:
            if not self._closed:
                self._inbox.append(lambda: self._cancel(request))
                self._wake.notify()

    def borrow(self, blocks: int, work: Callable[[Backend, list[int]], T]) -> T:
        """Run `work(backend, block ids)` between two steps, with `blocks` KV blocks of its own, and wait.

        Raises what `work` raises, and RuntimeFailure if running requests leave too few blocks.
        """
        return self._await(lambda result: self._lend(blocks, work, result))

    def between_steps(self, work: Callable[[Scheduler, Backend], T]) -> T:
        """Run `work(scheduler, backend)` between two steps and wait; for what must not meet a step.

        Raises what `work` raises, and RuntimeFailure where the engine is closed.
        """

        def run(result: futures.Future[T]) -> None:
            try:
                result.set_result(work(self._scheduler, self._backend))
            except Exception as error:  # noqa: BLE001
                result.set_exception(error)

        return self._await(run)

    def end_newest(self, error: EdgeseekError) -> int | None:
        """End the request that came last, running or waiting, with `error`.

        Returns its prompt's length in tokens, None where there is no request.
        """

        def end(_scheduler: Scheduler, _backend: Backend) -> int | None:
            if not self._requests:
                return None
            newest = self._requests[max(self._requests)].sequence
            self._fail(newest, error)
            return newest.prompt_tokens

        return self.between_steps(end)

    def _await(self, run: Callable[[futures.Future[T]], None]) -> T:
        """Have the engine thread call `run` between two steps, and wait for the result that it sets."""
        result: futures.Future[T] = futures.Future()
        self._post(lambda: run(result))
        while not result.done():
            alive = self._thread.is_alive()
            futures.wait([result], timeout=POLL_S)
            if not alive and not result.done():
                raise RuntimeFailure("the engine ended before the work did")
        return result.result()

    def close(self) -> None:
        """End what runs with an error and join the thread; safe to call twice."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def step(self) -> None:
        """One forward pass and what follows from it; runs on the engine thread."""
        batch = self._scheduler.schedule()
        try:
            logits = self._forward(batch)
        except Exception as error:  # noqa: BLE001
            for item in batch:
                self._fail(item.sequence, error)
        else:
            self._postprocess(batch, logits)
        if self._check_invariants:
            self._scheduler.check()

    def _forward(self, batch: Items[Scheduled]) -> npt.NDArray[np.float32]:
        now = self._clock()
        for item in batch:
            request = self._requests[item.sequence.id]
            if request.started_at is None:
                request.started_at = now
        logits = self._backend.forward([item.slice for item in batch])
        if self._costs is not None and len(logits) == sum(len(item.slice.tokens) for item in batch):
            self._costs.note(len(logits), self._clock() - now)
        return logits

    def _postprocess(self, batch: Items[Scheduled], logits: npt.NDArray[np.float32]) -> None:
        drawing = [item for item in batch if item.completes]
        for item in batch:
            self._scheduler.advance(item)
        rows = [item.sequence.sampling.row(len(item.sequence.tokens)) for item in drawing]
        firsts = itertools.accumulate((1 + len(item.draft) for item in drawing), initial=0)
        first = list(firsts)[:-1]
        # Choosing rows copies them, which without proposals would be all.
        chosen = logits if len(first) == len(logits) else logits[first]
        for item, start, outcome in zip(drawing, first, self._draw(drawing, chosen, rows), strict=True):
            self._take(item, logits[start : start + 1 + len(item.draft)], outcome)

    def _take(self, item: Scheduled, logits: npt.NDArray[np.float32], outcome: Sample | Exception) -> None:
        """Accept a sequence's draws: the first one, then one for each proposed token that came true.

        A draw depends on the tokens before it, so each is made when they are known.
        """
        sequence, drawn = item.sequence, list[int]()
        sequence.drafted_tokens += len(item.draft)
        while True:
            if isinstance(outcome, Exception):
                return self._fail(sequence, outcome)
            right = len(drawn) < len(item.draft) and outcome.token == item.draft[len(drawn)]
            sequence.accepted_tokens += right
            drawn.append(outcome.token)
            try:
                self._accept(sequence, outcome)
            except Exception as error:  # noqa: BLE001
                return self._fail(sequence, error)
            if sequence.id not in self._requests:
                return None
            if not right:
                break
            self._scheduler.confirm(sequence)
            row = sequence.sampling.row(len(sequence.tokens))
            outcome = self._draw([item], logits[len(drawn) : len(drawn) + 1], [row])[0]
        if sequence.lookup is not None:
            sequence.lookup.learn(drawn)
        return None

    def _draw(
        self, items: Items[Scheduled], logits: npt.NDArray[np.float32], rows: Items[SampleRow]
    ) -> list[Sample | Exception]:
        """A sample for each item, of what its constraint allows."""
        if all(item.sequence.constraint is None for item in items):
            return self._sample(logits, rows)
        logits, failed = logits.copy(), dict[int, Exception]()
        for index, item in enumerate(items):
            if item.sequence.constraint is not None:
                try:
                    item.sequence.constraint.allow(logits[index])
                except RuntimeFailure as error:
                    failed[index] = error
        samples = self._sample(logits, rows)
        return [failed.get(index, sample) for index, sample in enumerate(samples)]

    def _sample(self, logits: npt.NDArray[np.float32], rows: Items[SampleRow]) -> list[Sample | Exception]:
        """A sample for each row; where one row is bad (a NaN), the others still get theirs."""
        if not rows:
            return []
        try:
            return list(self._backend.sample(logits, rows))
        except Exception as error:  # noqa: BLE001
            if len(rows) == 1:
                return [error]
            return [self._sample(logits[i : i + 1], rows[i : i + 1])[0] for i in range(len(rows))]

    def _accept(self, sequence: Sequence, sample: Sample) -> None:
        """Add a drawn token to its sequence and deliver what it brings."""
        request = self._requests[sequence.id]
        now = self._clock()
        request.token_drawn(now)
        if sequence.stopping.ends(sample.token):
            text, stop_text = request.text.finish()
            self._finish(request, Chunk(text, ()), "stop", sample.token if stop_text is None else stop_text)
            return
        sequence.append(sample.token)
        silent = sequence.stopping.is_silent(sample.token)
        text, stop_text = ("", None) if silent else request.text.push(sample.token)
        complete = sequence.constraint is not None and sequence.constraint.accept(sample.token)
        full = complete or sequence.stopping.is_full(sequence.output_tokens)
        if full and stop_text is None:
            rest, stop_text = request.text.finish()
            text += rest
        chunk = Chunk(text, (sample.token,), _logprobs(sequence.sampling.params, sample))
        if stop_text is not None:
            self._finish(request, chunk, "stop", stop_text)
        elif full:
            self._finish(request, chunk, "stop" if complete else "length")
        else:
            request.put(chunk)

    def _finish(
        self, request: Request, chunk: Chunk, reason: FinishReason, matched: str | int | None = None
    ) -> None:
        del self._requests[request.sequence.id]
        self._scheduler.remove(request.sequence)
        request.finish(chunk, reason, self._clock(), matched)

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        # What a failed step left in the blocks is unknown, so nobody goes on from them.
        request = self._requests.pop(sequence.id)
        self._scheduler.remove(sequence, retain=False)
        request.fail(_translate(error))

    def _fail_all(self, error: Exception) -> None:
        for request in self._requests.values():
            request.fail(_translate(error))
        self._requests.clear()

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(
            self._backend.num_blocks,
            self._backend.capabilities,
            slots=self._slots,
            step_tokens=self._step_tokens,
            retain=self._retain,
            costs=self._costs,
        )

    def _admit(self, request: Request) -> None:
        self._requests[request.sequence.id] = request
        self._scheduler.add(request.sequence)

    def _cancel(self, request: Request) -> None:
        if request.sequence.id in self._requests:
            text, _ = request.text.finish()
            self._finish(request, Chunk(text, ()), "cancelled")

    def _lend(self, blocks: int, work: Callable[[Backend, list[int]], T], result: futures.Future[T]) -> None:
        try:
            taken = self._scheduler.reserve(blocks)
        except RuntimeFailure as error:
            result.set_exception(error)
            return
        try:
            result.set_result(work(self._backend, taken))
        except Exception as error:  # noqa: BLE001
            result.set_exception(error)
        finally:
            self._scheduler.blocks.release(taken)

    def _post(self, message: Callable[[], None]) -> None:
        with self._wake:
            if self._closed:
                raise RuntimeFailure("the engine is closed; load the model again")
            self._inbox.append(message)
            self._wake.notify()

    def _run(self) -> None:
        while self._receive():
            if self._scheduler.has_work:
                try:
                    self.step()
                except Exception as error:  # noqa: BLE001
                    self._fail_all(error)
                    # The books can no longer be trusted.
                    self._scheduler = self._new_scheduler()
            self.after_delivery()
        self._fail_all(RuntimeFailure("the engine was closed"))
        self.after_delivery()

    def _receive(self) -> bool:
        """Wait until there is something to do, act on the inbox; False once closed."""
        with self._wake:
            while not (self._inbox or self._closed or self._scheduler.has_work):
                self._wake.wait()
            # Exchanged, not copied and cleared: a Generation that is collected in between leaves word here.
            messages, self._inbox = self._inbox, deque()
            closed = self._closed
        for message in messages:
            message()
        return not closed

    def _validate(self, prompt: Items[int], params: SamplingParams) -> None:
        vocab = self._backend.config.vocab_size
        if not prompt:
            raise UsageError("the prompt is empty; give at least one token")
        if len(prompt) > self.context:
            raise PromptTooLongError(len(prompt), self.context)
        for name, ids in (("the prompt", prompt), ("logit_bias", params.logit_bias)):
            low, high = min(ids, default=0), max(ids, default=0)
            if low < 0 or high >= vocab:
                wrong = low if low < 0 else high
                raise UsageError(f"{name} holds token {wrong}; the vocabulary has {vocab} tokens")


def _nothing() -> None:
    """What follows a delivery unless somebody wants to know."""


def _logprobs(params: SamplingParams, sample: Sample) -> tuple[TokenLogprob, ...]:
    if params.logprobs is None:
        return ()
    top = tuple(zip(sample.top_ids, sample.top_logprobs, strict=True))
    return (TokenLogprob(sample.token, sample.logprob, top),)


def _translate(error: Exception) -> EdgeseekError:
    """An error of its own for each request, since raising one in several threads would mix their traces."""
    text = str(error) if isinstance(error, (EdgeseekError, ValueError)) else repr(error)
    if isinstance(error, OverloadedError):
        failure: EdgeseekError = OverloadedError(text, started=error.started)
    else:
        failure = RuntimeFailure(text)
    failure.__cause__ = error
    return failure


def _close(reference: weakref.ReferenceType[Engine]) -> None:
    engine = reference()
    if engine is not None:
        engine.close()
