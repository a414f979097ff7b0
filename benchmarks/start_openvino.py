"""Load a GGUF in OpenVINO GenAI and write the first greedy token to stdout: a start, as its user sees it."""

from __future__ import annotations

import os

import openvino_genai as genai

from benchmarks.work import parse
from benchmarks.worker_openvino import greedy, properties, tensor


def main() -> None:
    """Answer the 32-token prompt with one token."""
    work = parse(__doc__)
    pipeline = genai.LLMPipeline(work.model, "CPU", **properties(work))
    answer = pipeline.generate(tensor(work.prompt(1)), greedy(1))
    text = pipeline.get_tokenizer().decode(answer.tokens[0])
    os.write(1, text.encode() or b" ")


if __name__ == "__main__":
    main()
