"""Load a GGUF in llama.cpp and write the first greedy token to stdout: a start, as its user sees it."""

from __future__ import annotations

import ctypes
import os

from llama_cpp import llama_cpp as native

from benchmarks.work import parse
from benchmarks.worker_llamacpp import Session


def main() -> None:
    """Answer the 32-token prompt with one token."""
    work = parse(__doc__)
    session = Session(work, streams=1)
    token = session.prefill(work.prompt(1))
    piece = ctypes.create_string_buffer(64)
    vocabulary = native.llama_model_get_vocab(session.model)
    size = native.llama_token_to_piece(vocabulary, token, piece, len(piece), 0, True)
    os.write(1, piece.raw[: max(size, 0)] or b" ")


if __name__ == "__main__":
    main()
