"""Measure edgeseek in this process, through the API that its users call."""

from __future__ import annotations

import time

from benchmarks.work import Result, Work, memory, parse, report
from edgeseek import LLM, SamplingParams
from edgeseek.runtime.native import NativeBackend


def measure_single(llm: LLM, work: Work) -> tuple[float, float]:
    """(prefill tok/s, decode tok/s) of one stream, from the times at which its tokens arrive."""
    prompt = work.prompt()
    started = time.perf_counter()
    arrivals = [time.perf_counter() for _ in llm.generate(prompt, greedy(work.new_tokens))]
    if len(arrivals) != work.new_tokens:
        raise SystemExit(f"{len(arrivals)} chunks arrived for {work.new_tokens} tokens")
    return (
        len(prompt) / (arrivals[0] - started),
        (work.new_tokens - 1) / (arrivals[-1] - arrivals[0]),
    )


def measure_streams(llm: LLM, work: Work) -> float:
    """Tokens per second of all streams together, from all first tokens to all last ones."""
    params = greedy(work.new_tokens)
    streams = [llm.generate(work.prompt(stream + 1), params) for stream in range(work.streams)]
    arrivals = []
    for _ in range(work.new_tokens):
        for stream in streams:
            next(stream)
        arrivals.append(time.perf_counter())
    return work.streams * (work.new_tokens - 1) / (arrivals[-1] - arrivals[0])


def greedy(tokens: int) -> SamplingParams:
    """Exactly this many greedy tokens."""
    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)


def main() -> None:
    """Measure and report."""
    work = parse(__doc__)
    with LLM.load(work.model, context=work.context, threads=work.threads, speculation="off") as llm:
        llm.generate(work.prompt(1), greedy(2)).join()
        prefill, decode = measure_single(llm, work)
        peak, anonymous, from_file = memory()
        kv = llm.plan.kv
        backend = llm.backend
        weights = backend.bytes_per_token if isinstance(backend, NativeBackend) else 0
    with LLM.load(
        work.model, context=work.context, slots=work.streams, threads=work.threads, speculation="off"
    ) as llm:
        streams = measure_streams(llm, work)
    report(Result(prefill, decode, streams, peak, anonymous, from_file, kv, weights))


if __name__ == "__main__":
    main()
