"""Prefill, decode and streams of decodes on a backend: medians of several runs.

Speeds do not depend on what the tokens say, so ids are drawn at random from a fixed seed.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgeseek.architectures.spec import ModelConfig
from edgeseek.runtime.backend import BLOCK_TOKENS, Backend, Slice

#: Writing one position of each half block touches every page of it (pages of 4 KiB, 128 dimensions a head).
_TOUCH_STRIDE = BLOCK_TOKENS // 2
Clock = Callable[[], float]


@dataclass(frozen=True)
class Rate:
    """Median over the runs: tokens per second, all streams together, and seconds of one step."""

    tokens_per_s: float
    step_s: float


class WorkStoppedError(Exception):
    """Another thread asked a workload to end."""


class Workload:
    """Steps on `backend` in the KV blocks `blocks`; to be used between the engine's own steps.

    Once `stop` is set, the next step raises WorkStoppedError instead.
    """

    def __init__(
        self,
        backend: Backend,
        blocks: Sequence[int],
        *,
        step_tokens: int,
        stop: threading.Event,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._backend = backend
        self._stop = stop
        self._blocks = list(blocks)
        self._step_tokens = step_tokens
        self._clock = clock
        source = random.Random(0)
        self._ids = [source.randrange(backend.config.vocab_size) for _ in range(step_tokens)]

    def prefill(self, tokens: int, repeat: int) -> Rate:
        """Run a prompt of `tokens` tokens from an empty cache."""
        times = []
        for _ in range(repeat):
            begin = self._clock()
            for past in range(0, tokens, self._step_tokens):
                size = min(self._step_tokens, tokens - past)
                last = past + size == tokens
                self._forward([Slice(self._ids[:size], past, self._blocks, "last" if last else "none")])
            times.append(self._clock() - begin)
        seconds = statistics.median(times)
        return Rate(tokens / seconds, seconds)

    def decode(self, context: int, streams: int, steps: int, repeat: int) -> Rate:
        """Decode `steps` tokens of each of `streams` sequences that hold about `context` tokens."""
        tables = self._tables(context, streams)
        first = max(context - steps, 0)
        for table in tables:
            self._touch(table, context)
        rates, times = [], []
        for _ in range(repeat):
            begin = self._clock()
            for i in range(steps):
                self._forward(
                    [Slice([self._ids[(i + s) % len(self._ids)]], first + i, t) for s, t in enumerate(tables)]
                )
            seconds = self._clock() - begin
            times.append(seconds / steps)
            rates.append(streams * steps / seconds)
        return Rate(statistics.median(rates), statistics.median(times))

    def _forward(self, batch: Sequence[Slice]) -> None:
        if self._stop.is_set():
            raise WorkStoppedError
        self._backend.forward(batch)

    def _tables(self, context: int, streams: int) -> list[list[int]]:
        each = -(-context // BLOCK_TOKENS)
        return [self._blocks[s * each : (s + 1) * each] for s in range(streams)]

    def _touch(self, table: list[int], context: int) -> None:
        """Write into every page of the blocks: what was never written is read from one page of zeros."""
        places = range(0, context, _TOUCH_STRIDE)
        for begin in range(0, len(places), self._step_tokens):
            self._forward(
                [Slice([self._ids[0]], p, table, "none") for p in places[begin : begin + self._step_tokens]]
            )


def blocks_for(context: int, streams: int = 1) -> int:
    """KV blocks that `streams` sequences of `context` tokens take."""
    return -(-context // BLOCK_TOKENS) * streams


def macs_per_token(config: ModelConfig) -> int:
    """Multiply-accumulates of the layers' matrices for one token; embedding, head and attention left out."""
    q_width = config.num_heads * config.head_dim
    kv_width = config.num_kv_heads * config.head_dim
    attention = config.hidden_size * (2 * q_width + 2 * kv_width)
    return config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)
