"""Greedy continuations by transformers on the dequantized weights of real GGUF models.

    python tests/make_models/greedy_references.py MODEL.gguf OUT.json

transformers reads the GGUF itself (its own loader, fp32, eager attention, CPU), so nothing of edgeseek takes
part except the fixed prompts. Stored per prompt: its token ids, the continuation, and at each step the gap
between the two highest logits, by which a test may accept a first difference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PROMPTS = (
    "The capital of France is",
    "请用一句话解释什么是人工智能：",
    "从前有一座山，山上有一座庙，",
    "Good morning! 😀 Here is a short poem about the sun ☀️:",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "List three prime numbers greater than 10:",
    "Once upon a time, in a small village by the sea,",
    "Water boils at 100 degrees Celsius because",
)
NEW_TOKENS = 40


def greedy(model: Any, prompt_ids: list[int], count: int) -> tuple[list[int], list[float]]:
    """`count` greedy tokens after `prompt_ids`, and the top-two logit gap at each step."""
    import torch

    ids: list[int] = []
    gaps: list[float] = []
    cache = None
    feed = torch.tensor([prompt_ids])
    with torch.no_grad():
        for _ in range(count):
            out = model(feed, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            top = torch.topk(out.logits[0, -1].float(), 2)
            ids.append(int(top.indices[0]))
            gaps.append(round(float(top.values[0] - top.values[1]), 4))
            feed = torch.tensor([[ids[-1]]])
    return ids, gaps


def references(gguf: Path) -> list[dict[str, Any]]:
    """One record per prompt."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    records = []
    for prompt in PROMPTS:
        prompt_ids = tokenizer(prompt, add_special_tokens=False).input_ids
        ids, gaps = greedy(model, prompt_ids, NEW_TOKENS)
        records.append({"prompt": prompt, "prompt_ids": prompt_ids, "ids": ids, "gaps": gaps})
        print(repr(prompt), repr(tokenizer.decode(ids)), min(gaps), file=sys.stderr)
    return records


def main() -> None:
    """Write the records of one model."""
    gguf, out = Path(sys.argv[1]), Path(sys.argv[2])
    lines = ",\n ".join(json.dumps(record, ensure_ascii=False) for record in references(gguf))
    out.write_text(f"[{lines}]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
