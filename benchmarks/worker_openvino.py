"""Measure OpenVINO GenAI in this process: one stream as its users run it, streams through its batching.

Beyond the thread count and the sizes of cache and batch, everything is at its defaults.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from benchmarks.work import STREAM_PROMPT_TOKENS, Result, Work, memory, parse, report

#: Positions that one block of its cache holds on a CPU.
KV_BLOCK = 32
WARM_UP_TOKENS = 4


class Arrivals(genai.StreamerBase):  # type: ignore[misc]
    """The time at which each token arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def write(self, token: int | list[int]) -> Any:
        """Called with one token or several."""
        count = 1 if isinstance(token, int) else len(token)
        self.times += [time.perf_counter()] * count
        return genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Nothing is held back."""


def properties(work: Work) -> dict[str, int]:
    """Device properties."""
    return {"INFERENCE_NUM_THREADS": work.threads}


def greedy(tokens: int) -> Any:
    """Exactly this many greedy tokens."""
    config = genai.GenerationConfig()
    config.do_sample = False
    config.ignore_eos = True
    config.max_new_tokens = tokens
    return config


def tensor(ids: list[int]) -> Any:
    """Token ids as a batch of one, int64 [1, tokens]."""
    return openvino.Tensor(np.array([ids], dtype=np.int64))


def measure_single(pipeline: Any, work: Work) -> tuple[float, float]:
    """(prefill tok/s, decode tok/s) of one stream."""
    pipeline.generate(tensor(work.prompt(1)), greedy(WARM_UP_TOKENS))
    prompt = work.prompt()
    arrivals = Arrivals()
    started = time.perf_counter()
    pipeline.generate(tensor(prompt), greedy(work.new_tokens), arrivals)
    times = arrivals.times
    if len(times) != work.new_tokens:
        raise SystemExit(f"{len(times)} tokens arrived instead of {work.new_tokens}")
    return len(prompt) / (times[0] - started), (work.new_tokens - 1) / (times[-1] - times[0])


def measure_streams(work: Work) -> float:
    """Tokens per second of all streams together, from all first tokens to all last ones."""
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = max(512, work.streams * STREAM_PROMPT_TOKENS)
    scheduler.num_kv_blocks = work.streams * (-(-work.context // KV_BLOCK) + 1)
    pipeline = genai.ContinuousBatchingPipeline(work.model, scheduler, "CPU", properties(work))
    # The first step at a batch size compiles for it.
    _run_streams(pipeline, work, work.streams, WARM_UP_TOKENS)
    return work.streams * (work.new_tokens - 1) / _run_streams(pipeline, work, 0, work.new_tokens)


def _run_streams(pipeline: Any, work: Work, offset: int, tokens: int) -> float:
    """Seconds from all first tokens to all last ones, with the prompts of streams `offset` + 1 onwards."""
    handles = [
        pipeline.add_request(offset + i, tensor(work.prompt(offset + i + 1)), greedy(tokens))
        for i in range(work.streams)
    ]
    pipeline.step()
    if not all(handle.can_read() for handle in handles):
        raise SystemExit("OpenVINO GenAI did not take all prompts into its first step")
    started = time.perf_counter()
    while pipeline.has_non_finished_requests():
        pipeline.step()
    ended = time.perf_counter()
    lengths = [len(handle.read_all()[0].generated_ids) for handle in handles]
    if lengths != [tokens] * work.streams:
        raise SystemExit(f"streams ended after {lengths} tokens instead of {tokens}")
    return ended - started


def main() -> None:
    """Measure and report."""
    work = parse(__doc__)
    pipeline = genai.LLMPipeline(work.model, "CPU", **properties(work))
    prefill, decode = measure_single(pipeline, work)
    peak, anonymous, from_file = memory()
    del pipeline
    report(Result(prefill, decode, measure_streams(work), peak, anonymous, from_file))


if __name__ == "__main__":
    main()
