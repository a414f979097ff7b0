"""Complete a prompt and stream the text: python examples/generate.py [MODEL] [PROMPT]"""

from __future__ import annotations

import sys

import edgeseek
from edgeseek import SamplingParams


def main() -> None:
    """Stream the continuation, then say how fast it was."""
    model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
    prompt = sys.argv[2] if len(sys.argv) > 2 else "The three most useful things about a small computer are"
    params = SamplingParams(temperature=0.7, top_p=0.9, seed=1, max_tokens=64)
    with edgeseek.load(model) as llm:
        for chunk in llm.generate(prompt, params):
            print(chunk.text, end="", flush=True)
            if chunk.timings is not None:
                print(f"\n[{chunk.finish_reason}, {chunk.timings.decode_tokens_per_s:.1f} tokens/s]")


if __name__ == "__main__":
    main()
