"""A request between the engine thread, which delivers chunks, and a caller, who reads them.

`Request` is the engine's side with its clock readings, `Generation` the caller's: an iterator of chunks
that can be cancelled, and is when it is dropped.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from edgeseek.engine.outputs import Chunk, Completion, FinishReason, Timings
from edgeseek.engine.sequence import Sequence
from edgeseek.engine.text import TextStream
from edgeseek.errors import RuntimeFailure

#: Seconds between two looks at whether the engine is still alive; signals are handled in between.
POLL_S = 0.2


@dataclass(eq=False)
class Request:
    """One submitted sequence; only the engine thread touches it, except for `outbox`.

    With `deliver` the chunks, and an error that ends it, go there instead: it is called on the engine's
    thread, so it must be quick and must not raise.
    """

    sequence: Sequence
    text: TextStream
    submitted_at: float
    started_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    drawn: int = 0
    outbox: queue.SimpleQueue[Chunk | BaseException] = field(default_factory=queue.SimpleQueue)
    deliver: Callable[[Chunk | BaseException], None] | None = None

    def put(self, item: Chunk | BaseException) -> None:
        """Hand over a chunk or the error that ends the request."""
        (self.deliver or self.outbox.put)(item)

    def token_drawn(self, now: float) -> None:
        """Note the time of one more token."""
        if self.first_token_at is None:
            self.first_token_at = now
        self.last_token_at = now
        self.drawn += 1

    def finish(
        self, chunk: Chunk, reason: FinishReason, now: float, matched: str | int | None = None
    ) -> None:
        """Deliver the last chunk: `chunk` with the reason, timings and seed filled in."""
        self.put(
            Chunk(
                text=chunk.text,
                token_ids=chunk.token_ids,
                logprobs=chunk.logprobs,
                finish_reason=reason,
                matched=matched,
                timings=self._timings(now),
                seed=self.sequence.sampling.seed,
            )
        )

    def fail(self, error: BaseException) -> None:
        """End with an error that the caller's iterator raises."""
        self.put(error)

    def _timings(self, now: float) -> Timings:
        started = now if self.started_at is None else self.started_at
        first = now if self.first_token_at is None else self.first_token_at
        last = first if self.last_token_at is None else self.last_token_at
        return Timings(
            queue_s=started - self.submitted_at,
            prefill_s=first - started,
            decode_s=last - first,
            first_token_s=0.0 if self.first_token_at is None else first - self.submitted_at,
            total_s=now - self.submitted_at,
            prompt_tokens=self.sequence.prompt_tokens,
            cached_tokens=self.sequence.cached_tokens,
            completion_tokens=self.sequence.output_tokens,
            decode_tokens=max(self.drawn - 1, 0),
            preemptions=self.sequence.preemptions,
            drafted_tokens=self.sequence.drafted_tokens,
            accepted_tokens=self.sequence.accepted_tokens,
        )


class Generation(Iterator[Chunk]):
    """The chunks of one request, as they come. Dropping it before its end cancels the request.

    `owner` is kept alive meanwhile.
    """

    def __init__(
        self,
        request: Request,
        *,
        cancel: Callable[[Request], None],
        is_alive: Callable[[], bool],
        stream: bool = True,
        owner: object = None,
    ) -> None:
        self._request = request
        self._owner = owner
        self._cancel = cancel
        self._is_alive = is_alive
        self._stream = stream
        self._done = False

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return self._request.sequence.prompt_tokens

    @property
    def seed(self) -> int:
        """The seed the draws use, given or random."""
        return self._request.sequence.sampling.seed

    def __next__(self) -> Chunk:
        """The next chunk; raises what ended the request if it failed. Waits so that Ctrl-C gets through."""
        if self._done:
            raise StopIteration
        return self._receive() if self._stream else self._receive_all()

    def _receive(self) -> Chunk:
        while True:
            # Looked at before the outbox: what a dying engine delivered last must not be missed.
            alive = self._is_alive()
            try:
                item = self._request.outbox.get(timeout=POLL_S)
            except queue.Empty:
                if alive:
                    continue
                self._done = True
                raise RuntimeFailure("the engine ended before the request did") from None
            if isinstance(item, BaseException):
                self._done = True
                raise item
            self._done = item.finish_reason is not None
            return item

    def _receive_all(self) -> Chunk:
        chunks = [self._receive()]
        while not self._done:
            chunks.append(self._receive())
        last = chunks[-1]
        return Chunk(
            text="".join(c.text for c in chunks),
            token_ids=tuple(t for c in chunks for t in c.token_ids),
            logprobs=tuple(p for c in chunks for p in c.logprobs),
            finish_reason=last.finish_reason,
            matched=last.matched,
            timings=last.timings,
            seed=last.seed,
        )

    def join(self) -> Completion:
        """Wait for the end and return everything not yet read as one value."""
        chunk = self._receive_all()
        if chunk.finish_reason is None or chunk.timings is None or chunk.seed is None:
            raise RuntimeFailure("the engine delivered a last chunk without its timings")
        return Completion(
            text=chunk.text,
            token_ids=chunk.token_ids,
            logprobs=chunk.logprobs,
            finish_reason=chunk.finish_reason,
            matched=chunk.matched,
            timings=chunk.timings,
            seed=chunk.seed,
        )

    def cancel(self) -> None:
        """Ask the engine to stop; the iterator goes on to a last chunk with finish reason "cancelled"."""
        if not self._done:
            self._cancel(self._request)

    def close(self) -> None:
        """Cancel and read no further."""
        self.cancel()
        self._done = True

    def __del__(self) -> None:
        self.close()
