"""Quantize, run, export, run the graph: python examples/onnx_walk.py MODEL [FOLDER] [TEXT]

Needs: pip install 'edgeseek[onnx]'. MODEL is a checkpoint's folder, a GGUF or a package; FOLDER gets the
quantized package and the graph; TEXT is what to calibrate on (default: this program). With commands:

    edgeseek quantize MODEL -o FOLDER/package --quantize q4 --calibrate TEXT
    edgeseek run FOLDER/package --prompt ...
    edgeseek export FOLDER/package -o FOLDER/graph
    edgeseek run FOLDER/graph --backend onnx --prompt ...
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

import edgeseek
from edgeseek import SamplingParams
from edgeseek.calibration.quantization import Job
from edgeseek.calibration.quantizer import quantize
from edgeseek.export.onnx import write_onnx
from edgeseek.quantize.recipe import parse_recipe
from edgeseek.settings import Settings

PROMPT = "The three most useful things about a small computer are"
TOKENS = 32


def main() -> None:
    """The whole walk; both ways of running the graph give the same text."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    model = Path(sys.argv[1])
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "onnx-walk")
    text = Path(sys.argv[3] if len(sys.argv) > 3 else __file__).read_text(encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings.from_environment(os.environ)

    # 1. Quantize to 4 bits, calibrated.
    job = Job(model, folder / "package", parse_recipe("q4"), method="gptq", text=text, force=True)
    outcome = quantize(job, settings)
    print(f"quantized     {outcome.output}, {outcome.bits_per_weight:.2f} bits a weight")

    # 2. Run it on edgeseek's own core.
    params = SamplingParams(temperature=0, max_tokens=TOKENS)
    with edgeseek.load(str(outcome.output)) as llm:
        print(f"core          {llm.complete(PROMPT, params).text!r}")

    # 3. Export: the graph holds exactly the package's values.
    report = write_onnx(outcome.output, folder / "graph", precision="int4", max_positions=512, force=True)
    print(f"exported      {report.graph}, {report.size / 1e6:.0f} MB")

    # 4. The same engine on ONNX Runtime, as `edgeseek run FOLDER --backend onnx` does.
    with edgeseek.load(str(report.graph.parent), backend="onnx") as llm:
        print(f"onnx backend  {llm.complete(PROMPT, params).text!r}")

    # 5. Plain ONNX Runtime.
    print(f"onnxruntime   {complete(report.graph, PROMPT, TOKENS)!r}")


def complete(graph: Path, prompt: str, tokens: int) -> str:
    """Greedy continuation of `prompt` by an exported graph, with no other help than a tokenizer."""
    tokenizer = Tokenizer.from_file(str(graph.parent / "tokenizer.json"))
    ends = json.loads((graph.parent / "generation_config.json").read_text()).get("eos_token_id", [])
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_outputs()]
    past = {entry.name: empty(entry) for entry in session.get_inputs() if entry.name.startswith("past")}
    new, drawn = tokenizer.encode(prompt).ids, list[int]()
    total = 0
    while len(drawn) < tokens:
        total += len(new)
        inputs = {"input_ids": np.array([new]), "attention_mask": np.ones((1, total), np.int64), **past}
        made = dict(zip(names, session.run(names, inputs), strict=True))
        token = int(made["logits"][0, -1].argmax())
        if token in ends:
            break
        drawn.append(token)
        new = [token]
        # What is present now is the past of the next step.
        past = {name: made[name.replace("past_key_values", "present")] for name in past}
    return tokenizer.decode(drawn)


def empty(entry: Any) -> Any:
    """Keys or values of no tokens: [batch, heads, 0, dimensions of a head]."""
    _, heads, _, dims = entry.shape
    return np.zeros((1, heads, 0, dims), np.float16 if "float16" in entry.type else np.float32)


if __name__ == "__main__":
    main()
