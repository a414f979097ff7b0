"""Has llama.cpp quantize a GGUF: python llama_quantize.py SOURCE TARGET TYPE. Needs llama-cpp-python.

Imports nothing of edgeseek, so that it runs in an environment that has llama-cpp-python only.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

#: llama.cpp's `llama_ftype` of the types that its quantize knows.
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q4_K_S": 14, "Q4_K_M": 15, "Q6_K": 18}


def quantize(source: Path, target: Path, kind: str) -> None:
    """Write `source`, a float GGUF, as `target` of the file type `kind`."""
    import llama_cpp

    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = FILE_TYPES[kind]
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(options))
    if code:
        raise RuntimeError(f"llama.cpp could not quantize {source} to {kind}")


if __name__ == "__main__":
    quantize(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
