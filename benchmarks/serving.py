"""What HTTP costs: python -m benchmarks.serving MODEL [--clients 8] [--tokens 64] [--rounds 5].

Alternates between the engine alone, in this process, and clients of an `edgeseek serve` in one of its own,
with the same prompts, tokens and threads; medians. Then the time to the first token of a prompt whose first
tokens are cached, in steps of one decoding stream. Clients are raw sockets in this process, so that they take
little of the processors that both sides share.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgeseek.engine import SamplingParams
from edgeseek.llm import LLM

NAME = "served"


@dataclass(frozen=True)
class Work:
    """What each side does."""

    prompts: Sequence[Sequence[int]]
    tokens: int

    @property
    def total(self) -> int:
        """Tokens drawn in one round."""
        return len(self.prompts) * self.tokens


def engine_rate(llm: LLM, work: Work) -> float:
    """Tokens per second of all prompts together, submitted at once."""
    params = SamplingParams(max_tokens=work.tokens, ignore_eos=True)
    began = time.perf_counter()
    running = [llm.generate(prompt, params) for prompt in work.prompts]
    for generation in running:
        generation.join()
    return work.total / (time.perf_counter() - began)


@dataclass
class Streamed:
    """When an answer's events came, in seconds since it was asked for, and what it counted."""

    times: list[float]
    usage: dict[str, Any]


async def stream(port: int, prompt: Sequence[int], tokens: int, **more: Any) -> Streamed:
    """Ask for a streamed completion and read it to its end."""
    body = json.dumps(
        {
            "model": NAME,
            "prompt": list(prompt),
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **more,
        }
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.perf_counter()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    )
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    times, tail = [], b""
    while part := await reader.read(65536):
        if b"data: {" in part:
            times.append(time.perf_counter() - began)
        tail = (tail + part)[-4096:]
    writer.close()
    usage = re.findall(rb'"usage":(\{.*?\}\})', tail)
    if not usage:
        raise RuntimeError(f"the server answered {tail[:500]!r}")
    return Streamed(times, json.loads(usage[-1]))


async def http_rate(port: int, work: Work) -> float:
    """Tokens per second of all clients together, who ask at once."""
    began = time.perf_counter()
    answers = await asyncio.gather(*(stream(port, prompt, work.tokens) for prompt in work.prompts))
    seconds = time.perf_counter() - began
    counted = sum(answer.usage["completion_tokens"] for answer in answers)
    if counted != work.total:
        raise RuntimeError(f"{counted} tokens came instead of {work.total}")
    return work.total / seconds


async def first_token(port: int, prefix: Sequence[int]) -> tuple[float, float, float]:
    """Seconds to the first token, cold and with all but the last 4 tokens cached, and of one decode step."""
    cold = await stream(port, prefix, 4)
    warm, steps = [], []
    for round_ in range(5):
        answer = await stream(port, [*prefix[:-4], *range(20 + 4 * round_, 24 + 4 * round_)], 24)
        if answer.usage["prompt_tokens_details"]["cached_tokens"] < len(prefix) - 40:
            raise RuntimeError(f"the prefix was not cached: {answer.usage}")
        warm.append(answer.times[0])
        gaps = [b - a for a, b in zip(answer.times[:-1], answer.times[1:], strict=True)]
        steps.append(statistics.median(gaps[:20]))
    return cold.times[0], statistics.median(warm), statistics.median(steps)


@contextlib.contextmanager
def server(model: str, options: Sequence[str]) -> Iterator[int]:
    """`edgeseek serve` in a process of its own; gives its port."""
    command = [sys.executable, "-m", "edgeseek", "serve", model, "--port", "0", "--name", NAME, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    if process.stderr is None:
        raise RuntimeError("no pipe")
    port = 0
    try:
        for line in process.stderr:
            if line.startswith("listening on "):
                port = int(line.rsplit(":", 1)[1])
            if line.startswith("serving "):
                break
        else:
            raise RuntimeError("the server did not start")
        yield port
    finally:
        process.terminate()
        process.communicate(timeout=60)


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefix", type=int, default=1000, help="0 leaves out the cached prefix")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    context = max(given.prefix + 64, given.prompt_tokens + given.tokens + 32)
    slots = given.clients
    options = ["--context", str(context), "--slots", str(slots), "--threads", str(given.threads)]
    ids = [100 + (i * 7919) % 20_000 for i in range(given.clients * given.prompt_tokens)]
    prompts = [ids[i * given.prompt_tokens : (i + 1) * given.prompt_tokens] for i in range(given.clients)]
    work = Work(prompts, given.tokens)
    with (
        LLM.load(given.model, context=context, slots=slots, threads=given.threads, speculation="off") as llm,
        server(given.model, [*options, "--speculation", "off"]) as port,
    ):
        engine_rate(llm, work)
        asyncio.run(http_rate(port, work))
        rates = [(engine_rate(llm, work), asyncio.run(http_rate(port, work))) for _ in range(given.rounds)]
        engine, http = (statistics.median(side) for side in zip(*rates, strict=True))
        ratio = statistics.median(b / a for a, b in rates)
        print(
            f"| {given.clients} streams | engine alone, tok/s | HTTP, tok/s | HTTP ÷ engine | step grows by |"
        )
        print("|---|---|---|---|---|")
        print(f"| | {engine:.1f} | {http:.1f} | {ratio:.3f} | {100 / ratio - 100:.1f} % |")
        if given.prefix:
            prefix = [100 + (i * 7919) % 20_000 for i in range(given.prefix)]
            cold, warm, step = asyncio.run(first_token(port, prefix))
            print(f"\n| prefix of {given.prefix} | cold | cached | decode step | cached ÷ step |")
            print("|---|---|---|---|---|")
            shown = f"{cold * 1e3:.0f} | {warm * 1e3:.1f} | {step * 1e3:.1f} | {warm / step:.2f}"
            print(f"| first token, ms | {shown} |")


if __name__ == "__main__":
    main()
