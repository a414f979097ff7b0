"""How far rounded GGUF files of a model are from its full precision: ours beside llama.cpp's own quantize.

    python benchmarks/gguf_quality.py MODEL --text FILE [--types Q4_0 Q4_K_M] [--window 256] [--windows 100]

Both start from the same F32 GGUF, get the same types tensor by tensor (no importance matrix) and are run by
llama.cpp, so only the rounding differs. Printed are file bytes, the mean KL divergence of the next token's
distribution to that of the F32 file over all positions, and the perplexity. Needs llama-cpp-python.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.llama_quantize import FILE_TYPES, quantize
from edgeseek.export.gguf import write_gguf
from edgeseek.export.gguf_types import mixture
from edgeseek.export.source import open_source

Rows = npt.NDArray[np.float64]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path, help="Hugging Face folder, GGUF or package of float weights")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--types", nargs="+", default=["Q4_0", "Q4_K_M"], choices=sorted(FILE_TYPES))
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--windows", type=int, default=100)
    words = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        full = Path(folder) / "full.gguf"
        files = []
        with open_source(words.model) as source:
            write_gguf(source, full, types=mixture("F32", source.config))
            for kind in words.types:
                ours, theirs = Path(folder) / f"edgeseek {kind}.gguf", Path(folder) / f"llama.cpp {kind}.gguf"
                write_gguf(source, ours, types=mixture(kind, source.config))
                quantize(full, theirs, kind)
                files += [ours, theirs]
        print(f"{'file':<20}{'bytes':>12}{'mean KL':>12}{'perplexity':>12}")
        for path, divergence, perplexity in compare(full, files, words.text, words.window, words.windows):
            print(
                f"{path.stem:<20}{path.stat().st_size:>12}{divergence:>12.6f}{perplexity:>12.4f}", flush=True
            )


def compare(
    full: Path, files: Sequence[Path], text: Path, window: int, windows: int
) -> Iterator[tuple[Path, float, float]]:
    """For the full file and each other: mean KL divergence to the full file in nats, perplexity."""
    reference = _load(full, window)
    ids = reference.tokenize(text.read_bytes(), add_bos=False, special=False)
    parts = [ids[i * window : (i + 1) * window] for i in range(min(windows, len(ids) // window))]
    for path in (full, *files):
        other = _load(path, window)
        divergence = nll = 0.0
        for part in parts:
            truth, found = _log_probabilities(reference, part), _log_probabilities(other, part)
            divergence += float((np.exp(truth) * (truth - found)).sum())
            nll -= float(found[np.arange(window - 1), part[1:]].sum())
        yield path, divergence / (window * len(parts)), float(np.exp(nll / ((window - 1) * len(parts))))


def _load(path: Path, window: int) -> Any:
    import llama_cpp

    return llama_cpp.Llama(str(path), n_ctx=window, n_batch=window, logits_all=True, verbose=False)


def _log_probabilities(model: Any, ids: Sequence[int]) -> Rows:
    """[len(ids), vocabulary] natural logarithms."""
    model.reset()
    model.eval(ids)
    logits = np.asarray(model.scores[: len(ids)], np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    result: Rows = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return result


if __name__ == "__main__":
    main()
