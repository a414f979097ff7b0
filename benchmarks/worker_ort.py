"""Measure ONNX Runtime GenAI in this process, on a folder that its model builder made.

Streams together are one static batch, which its generator takes where all prompts have the same length.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import onnxruntime_genai as genai

from benchmarks.work import Result, Work, memory, parse, report

WARM_UP_TOKENS = 4


def load(work: Work) -> Any:
    """The model with this job's thread count instead of that in its genai_config.json."""
    genai.disable_telemetry_events()
    config = genai.Config(work.model)
    threads = {"session_options": {"intra_op_num_threads": work.threads}}
    config.overlay(json.dumps({"model": {"decoder": threads}}))
    return genai.Model(config)


class Batch:
    """Prompts of equal length that grow together to `tokens` new tokens each."""

    def __init__(self, model: Any, prompts: list[list[int]], tokens: int) -> None:
        length = len(prompts[0]) + tokens
        params = genai.GeneratorParams(model)
        # As the least length it keeps an end token from ending a stream.
        params.set_search_options(
            do_sample=False, batch_size=len(prompts), max_length=length, min_length=length
        )
        self.generator = genai.Generator(model, params)
        self.prompts = np.array(prompts, dtype=np.int32)
        self.tokens = tokens

    def prefill(self) -> None:
        """Run the prompts and draw every stream's first token."""
        self.generator.append_tokens(self.prompts)
        self.generator.generate_next_token()

    def decode(self) -> None:
        """Draw all other tokens. Raises SystemExit if a stream has not got them."""
        for _ in range(self.tokens - 1):
            self.generator.generate_next_token()
        rows, prompt = self.prompts.shape
        lengths = [len(self.generator.get_sequence(row)) - prompt for row in range(rows)]
        if lengths != [self.tokens] * rows:
            raise SystemExit(f"streams ended after {lengths} tokens instead of {self.tokens}")


def measure_single(batch: Batch, work: Work) -> tuple[float, float]:
    """(prefill tok/s, decode tok/s) of a batch of one."""
    started = time.perf_counter()
    batch.prefill()
    prefilled = time.perf_counter()
    batch.decode()
    ended = time.perf_counter()
    return work.prompt_tokens / (prefilled - started), (work.new_tokens - 1) / (ended - prefilled)


def measure_streams(model: Any, work: Work) -> float:
    """Tokens per second of all streams together, from all first tokens to all last ones."""
    batch = Batch(model, [work.prompt(stream + 1) for stream in range(work.streams)], work.new_tokens)
    batch.prefill()
    started = time.perf_counter()
    batch.decode()
    return work.streams * (work.new_tokens - 1) / (time.perf_counter() - started)


def main() -> None:
    """Measure and report."""
    work = parse(__doc__)
    model = load(work)
    warm_up = Batch(model, [work.prompt(1)], WARM_UP_TOKENS)
    warm_up.prefill()
    warm_up.decode()
    single = Batch(model, [work.prompt()], work.new_tokens)
    prefill, decode = measure_single(single, work)
    peak, anonymous, from_file = memory()
    del single
    report(Result(prefill, decode, measure_streams(model, work), peak, anonymous, from_file))


if __name__ == "__main__":
    main()
