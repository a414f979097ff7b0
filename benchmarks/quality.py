"""What quantizing costs, ours beside llama.cpp's: KL divergence to the model's own floats, at which size.

    python -m benchmarks.quality MODEL --text FILE --calibrate FILE [--peer-python PATH] [--quantize int4 q4]

MODEL is a Hugging Face folder of float weights, or any other source (its values then count as the floats).
llama.cpp quantizes the F16 GGUF that edgeseek writes of it (PATH is a Python with llama-cpp-python); every
result is imported without changing a value and run by edgeseek, so only the rounding differs. Sizes are of
the GGUF files, also of ours, which `quantize --format gguf` writes. Printed as a Markdown table.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.llama_quantize import FILE_TYPES
from edgeseek.calibration.divergence import Divergence, divergence
from edgeseek.calibration.quantization import Job, Method
from edgeseek.calibration.quantizer import quantize
from edgeseek.checkpoints import open_checkpoint
from edgeseek.export.gguf import write_gguf
from edgeseek.export.gguf_types import mixture
from edgeseek.export.source import open_source
from edgeseek.llm import LLM
from edgeseek.package import convert
from edgeseek.quantize.recipe import parse_recipe
from edgeseek.quantize.schemes import SCHEMES
from edgeseek.settings import Settings
from edgeseek.tokenizer import build_tokenizer_json, chat_template_of, generation_defaults

METHODS: tuple[tuple[Method, bool], ...] = (("rtn", False), ("rtn", True), ("awq", True), ("gptq", True))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True, help="measured on this")
    parser.add_argument("--calibrate", type=Path, required=True, help="another text")
    parser.add_argument("--peer-python", type=Path)
    parser.add_argument("--types", nargs="+", default=["Q4_0", "Q4_K_M"], choices=sorted(FILE_TYPES))
    parser.add_argument("--quantize", nargs="+", default=["int4", "q4"])
    parser.add_argument(
        "--methods", nargs="+", default=["rtn", "awq", "gptq"], choices=["rtn", "awq", "gptq"]
    )
    parser.add_argument("--tokens", type=int, default=1 << 15, help="of the calibration text")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--windows", type=int, default=100)
    words = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        Bench(words, Path(name)).run()


class Bench:
    """One model's table."""

    def __init__(self, words: argparse.Namespace, folder: Path) -> None:
        self._words, self._folder = words, folder
        self._settings = Settings.from_environment({})
        with open_source(words.model) as source:
            write_gguf(source, folder / "f16.gguf", types=mixture("F16", source.config))
        self._reference = self._load(words.model, "f32")
        self._ids = self._reference.tokenizer.encode(words.text.read_text(encoding="utf-8"))

    def run(self) -> None:
        """Print row by row."""
        print("| weights | method | file bytes | bits a weight | mean KL, nats | perplexity |")
        print("|---|---|---:|---:|---:|---:|")
        sizes: list[float] = []
        if self._words.peer_python is not None:
            for kind in self._words.types:
                path = self._folder / f"{kind}.gguf"
                script = Path(__file__).with_name("llama_quantize.py")
                command = [self._words.peer_python, script, self._folder / "f16.gguf", path, kind]
                subprocess.run(command, check=True, capture_output=True)
                sizes.append(bits_of(path))
                self._row(f"llama.cpp {kind}", "", path, sizes[-1])
        text = self._words.calibrate.read_text(encoding="utf-8")
        wanted: list[tuple[str, float | None]] = [(what, None) for what in self._words.quantize]
        wanted += [("int4", bits) for bits in sizes]
        for what, bits in wanted:
            for method, calibrated in METHODS:
                if method not in self._words.methods:
                    continue
                path = self._folder / "ours.gguf"
                outcome = quantize(
                    Job(
                        self._words.model,
                        path,
                        recipe=parse_recipe(what),
                        bits=bits,
                        method=method,
                        format="gguf",
                        text=text if calibrated else None,
                        tokens=self._words.tokens,
                        force=True,
                    ),
                    self._settings,
                )
                how = f"{method}, calibrated" if calibrated else method
                label = f"edgeseek {what}" if bits is None else f"edgeseek {what} --bits {bits:.3f}"
                self._row(label, how, path, outcome.bits_per_weight)
        found = divergence(self._reference, self._reference, self._ids, self._words.window, limit=1)
        print(f"\nThe reference against itself: {found.mean_kl:g}; {len(self._ids)} tokens of text.")

    def _row(self, label: str, method: str, path: Path, bits: float | None) -> None:
        with self._load(path, None) as model:
            found: Divergence = divergence(
                model, self._reference, self._ids, self._words.window, limit=self._words.windows
            )
        width = "" if bits is None else f"{bits:.3f}"
        print(
            f"| {label} | {method} | {path.stat().st_size:,} | {width} | {found.mean_kl:.6f} | "
            f"{found.perplexity:.4f} |",
            flush=True,
        )

    def _load(self, path: Path, scheme: str | None) -> LLM:
        """The checkpoint at `path`, imported; `scheme` None keeps every stored value."""
        target = Path(tempfile.mkdtemp(dir=self._folder)) / "package"
        with open_checkpoint(path) as checkpoint:
            assets = checkpoint.text_assets
            convert(
                checkpoint,
                target,
                name=path.name,
                tokenizer_json=build_tokenizer_json(assets),
                chat_template=chat_template_of(assets),
                generation_config=generation_defaults(assets),
                scheme=scheme,  # type: ignore[arg-type]
            )
        return LLM.load(target, context=self._words.window, settings=self._settings)


def bits_of(path: Path) -> float:
    """Stored bits of a weight of a GGUF's matrices, rounded up by less than a byte in all."""
    with open_source(path) as source:
        matrices = [tensor for tensor in source.tensors.values() if len(tensor.shape) == 2]
        weights = [math.prod(tensor.shape) for tensor in matrices]
        stored = [
            SCHEMES[t.scheme].bits_per_weight * count for t, count in zip(matrices, weights, strict=True)
        ]
    return math.ceil(1e6 * sum(stored) / sum(weights)) / 1e6


if __name__ == "__main__":
    main()
