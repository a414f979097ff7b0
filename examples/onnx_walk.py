"""Quantize, run, export, run the graph: python examples/onnx_walk.py [MODEL] [FOLDER]

Needs: pip install 'edgeseek[onnx]'. MODEL is a checkpoint's folder, a GGUF or a name; FOLDER gets the graph.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

import edgeseek
from edgeseek import SamplingParams
from edgeseek.export.onnx import write_onnx

PROMPT = "The three most useful things about a small computer are"
TOKENS = 32


def main() -> None:
    """The whole walk; both ways of running the graph give the same text."""
    model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "onnx-model")

    # 1. Quantize to 4 bits, once: the package stays in the store. 2. Run it on edgeseek's own core.
    params = SamplingParams(temperature=0, max_tokens=TOKENS)
    with edgeseek.load(model, scheme="q4") as llm:
        print(f"core          {llm.complete(PROMPT, params).text!r}")
        package = llm.package_path
    if package is None:
        raise SystemExit(f"{model} is a graph already; give a checkpoint or a name")

    # 3. Export: the graph holds exactly the package's values.
    report = write_onnx(package, folder, precision="int4", max_positions=512, force=True)
    print(f"exported      {report.graph}, {report.size / 1e6:.0f} MB")

    # 4. The same engine on ONNX Runtime, as `edgeseek run FOLDER --backend onnx` does.
    with edgeseek.load(str(folder), backend="onnx") as llm:
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
