"""Edit a file with a model, and see how much of the answer was guessed from the file.

    python examples/edit_code.py FILE "Rename the function f to area." [MODEL]

The answer is the same with speculation="off"; it only comes more slowly.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgeseek import LLM, SamplingParams


def main(path: str, task: str, model: str = "smollm2-135m") -> None:
    """Print the edited file, then the figures."""
    prompt = f"{task} Reply with the complete changed file.\n\n```\n{Path(path).read_text()}```"
    with LLM.load(model, speculation="lookup") as llm:
        for chunk in llm.chat([{"role": "user", "content": prompt}], SamplingParams(temperature=0.0)):
            print(chunk.text, end="", flush=True)
            if chunk.timings is not None:
                t = chunk.timings
                guessed = f"{t.accepted_tokens} of {t.drafted_tokens} guesses kept"
                print(f"\n[{t.completion_tokens} tokens, {guessed}]")


if __name__ == "__main__":
    main(*sys.argv[1:])
