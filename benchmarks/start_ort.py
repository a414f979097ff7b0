"""Load a folder in ONNX Runtime GenAI and write the first greedy token to stdout, as its user sees it."""

from __future__ import annotations

import os

import onnxruntime_genai as genai

from benchmarks.work import parse
from benchmarks.worker_ort import Batch, load


def main() -> None:
    """Answer the 32-token prompt with one token."""
    work = parse(__doc__)
    model = load(work)
    batch = Batch(model, [work.prompt(1)], 1)
    batch.prefill()
    text = genai.Tokenizer(model).decode(batch.generator.get_next_tokens())
    os.write(1, text.encode() or b" ")


if __name__ == "__main__":
    main()
