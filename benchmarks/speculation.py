"""What proposals from the text so far bring: decode speed with and without them, answer by answer.

    python benchmarks/speculation.py MODEL [--rounds 3] [--tokens 256] [--threads N] [--json]

Three prompts edit a file of this repository of about 150 lines, two are plain chat. Both ways alternate on
the same loaded weights; answers must be equal token by token, else the script fails.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from edgeseek import LLM, SamplingParams

SOURCE = Path(__file__).resolve().parent.parent / "src" / "edgeseek" / "engine" / "stopping.py"
EDITS = {
    "rename a function": "Rename the method `push` to `feed` everywhere in this file.",
    "insert a function": "Add a method `reset(self) -> None` to StopTexts that forgets all state.",
    "translate comments": "Translate the docstrings and comments of this file to German.",
}
CHATS = {
    "chat, advice": "Give me five tips for sleeping better, with a reason for each.",
    "chat, story": "Tell a short story about a lighthouse keeper who finds a message in a bottle.",
}


def prompts() -> dict[str, str]:
    """Name and user message of each prompt."""
    source = SOURCE.read_text(encoding="utf-8")
    tail = f"Reply with the complete changed file and nothing else.\n\n```python\n{source}```"
    return {**{name: f"{task} {tail}" for name, task in EDITS.items()}, **CHATS}


def measure(llm: LLM, text: str, tokens: int) -> tuple[float, tuple[int, ...], int, int]:
    """(decode tokens per second, ids, proposed, accepted) of one greedy answer."""
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    done = llm.chat([{"role": "user", "content": text}], params).join()
    rate = done.timings.decode_tokens_per_s
    if rate is None:
        raise SystemExit("the answer is too short to measure")
    return rate, done.token_ids, done.timings.drafted_tokens, done.timings.accepted_tokens


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    records: list[dict[str, Any]] = []
    with (
        LLM.load(options.model, context=4096, threads=options.threads, speculation="off") as plain,
        LLM.load(options.model, context=4096, threads=options.threads, speculation="lookup") as fast,
    ):
        for name, text in prompts().items():
            slow, quick, counts = [], [], (0, 0)
            for _ in range(options.rounds):
                rate, expected, *_ = measure(plain, text, options.tokens)
                slow.append(rate)
                rate, ids, *found = measure(fast, text, options.tokens)
                quick.append(rate)
                counts = (found[0], found[1])
                if ids != expected:
                    raise SystemExit(f"{name}: the answers differ")
            off, on = statistics.median(slow), statistics.median(quick)
            records.append(
                {
                    "prompt": name,
                    "edit": name in EDITS,
                    "off_tokens_per_s": off,
                    "lookup_tokens_per_s": on,
                    "ratio": statistics.median(b / a for a, b in zip(slow, quick, strict=True)),
                    "proposed": counts[0],
                    "accepted": counts[1],
                }
            )
    if options.json:
        print(json.dumps(records, indent=1))
        return
    print("| prompt | off, tok/s | lookup, tok/s | ratio | proposed | accepted |")
    print("|---|---:|---:|---:|---:|---:|")
    for r in records:
        print(
            f"| {r['prompt']} | {r['off_tokens_per_s']:.1f} | {r['lookup_tokens_per_s']:.1f} "
            f"| {r['ratio']:.2f} | {r['proposed']} | {r['accepted']} |"
        )
    for edit, what in ((True, "edits"), (False, "chat")):
        ratios = [r["ratio"] for r in records if r["edit"] is edit]
        print(f"{what}: mean ratio {statistics.mean(ratios):.2f}")


if __name__ == "__main__":
    main()
