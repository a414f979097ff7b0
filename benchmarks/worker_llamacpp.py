"""Measure llama.cpp in this process, through the C API that llama-cpp-python binds.

The low-level calls, as llama.cpp's own batched benchmark makes them: no per-token work in Python beyond
one decode and one greedy draw.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

from llama_cpp import llama_cpp as native

from benchmarks.work import Result, Work, memory, parse, report

MICRO_BATCH = 512


def _say_nothing(_level: int, _text: bytes, _data: Any) -> None:
    """llama.cpp logs every load to stderr otherwise."""


_silent = native.llama_log_callback(_say_nothing)


class Session:
    """A loaded model with a context for `streams` sequences of `context` positions each."""

    def __init__(self, work: Work, streams: int, model: Any = None) -> None:
        native.llama_log_set(_silent, ctypes.c_void_p(0))
        if model is None:
            native.llama_backend_init()
            model = native.llama_model_load_from_file(
                work.model.encode(), native.llama_model_default_params()
            )
            if not model:
                raise SystemExit(f"llama.cpp cannot load {work.model}")
        self.model = model
        params = native.llama_context_default_params()
        # llama.cpp pads a sequence's share of the context to 256 positions.
        params.n_ctx = streams * (-(-work.context // 256) * 256)
        params.n_batch = max(work.prompt_tokens, MICRO_BATCH)
        params.n_ubatch = MICRO_BATCH
        params.n_seq_max = streams
        params.n_threads = params.n_threads_batch = work.threads
        params.flash_attn_type = (
            native.LLAMA_FLASH_ATTN_TYPE_ENABLED if work.flash else native.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        params.no_perf = True
        self.context = native.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("llama.cpp cannot make a context of this size")
        self.batch = native.llama_batch_init(params.n_batch, 0, streams)
        self.sampler = native.llama_sampler_init_greedy()

    def clear(self) -> None:
        """Forget all sequences."""
        native.llama_memory_clear(native.llama_get_memory(self.context), True)

    def run(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """Decode rows of (token, position, sequence, wants logits) in one call."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        code = native.llama_decode(self.context, batch)
        if code != 0:
            raise SystemExit(f"llama_decode failed with {code}")

    def draw(self, row: int) -> int:
        """The greedy token of a row of the last `run`."""
        return int(native.llama_sampler_sample(self.sampler, self.context, row))

    def prefill(self, tokens: list[int]) -> int:
        """Run a prompt as sequence 0 and draw its first token."""
        last = len(tokens) - 1
        self.run([(token, i, 0, i == last) for i, token in enumerate(tokens)])
        return self.draw(-1)


def measure_single(session: Session, work: Work) -> tuple[float, float]:
    """(prefill tok/s, decode tok/s) of one stream."""
    prompt = work.prompt()
    session.clear()
    started = time.perf_counter()
    token = session.prefill(prompt)
    prefilled = time.perf_counter()
    for i in range(work.new_tokens - 1):
        session.run([(token, len(prompt) + i, 0, True)])
        token = session.draw(-1)
    ended = time.perf_counter()
    return len(prompt) / (prefilled - started), (work.new_tokens - 1) / (ended - prefilled)


def measure_streams(session: Session, work: Work) -> float:
    """Tokens per second of all streams together, from all first tokens to all last ones."""
    session.clear()
    prompts = [work.prompt(stream + 1) for stream in range(work.streams)]
    for stream, prompt in enumerate(prompts):
        last = len(prompt) - 1
        session.run([(token, i, stream, i == last) for i, token in enumerate(prompt)])
        prompt.append(session.draw(-1))
    started = time.perf_counter()
    for _ in range(work.new_tokens - 1):
        session.run([(prompt[-1], len(prompt) - 1, stream, True) for stream, prompt in enumerate(prompts)])
        for stream, prompt in enumerate(prompts):
            prompt.append(session.draw(stream))
    return work.streams * (work.new_tokens - 1) / (time.perf_counter() - started)


def main() -> None:
    """Measure and report."""
    work = parse(__doc__)
    single = Session(work, streams=1)
    single.prefill(work.prompt(1))
    prefill, decode = measure_single(single, work)
    peak, anonymous, from_file = memory()
    native.llama_free(single.context)
    many = Session(work, streams=work.streams, model=single.model)
    streams = measure_streams(many, work)
    report(Result(prefill, decode, streams, peak, anonymous, from_file))


if __name__ == "__main__":
    main()
