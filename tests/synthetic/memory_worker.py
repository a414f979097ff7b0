"""A process that loads a package, fills its whole KV cache, and prints what was planned and what it took.

Started by path: `memory_worker.py run PACKAGE OPTIONS`, where OPTIONS are LLM.load's as JSON, or
`memory_worker.py import|quantize CHECKPOINT TARGET SCHEME`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

#: The core's threads are enough.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def status() -> dict[str, int]:
    """The resident bytes of this process, by kind, and their highest sum so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    table = dict(line.split(":", 1) for line in lines)
    return {name: int(table[name].split()[0]) * 1024 for name in ("VmHWM", "RssAnon", "RssFile")}


def run(package: str, options: dict[str, Any]) -> dict[str, Any]:
    from edgeseek.llm import LLM, SamplingParams

    with LLM.load(package, **options) as llm:
        vocabulary, length = llm.config.vocab_size, llm.context - 4
        answer = SamplingParams(max_tokens=4, ignore_eos=True)
        # Every page of a table of token vectors is used, and no two prompts begin alike.
        step = max(1, vocabulary // length)
        prompts = [[(i + step * j) % vocabulary for j in range(length)] for i in range(llm.plan.slots)]
        for answered in [llm.generate(prompt, answer) for prompt in prompts]:
            answered.join()
        plan = llm.plan
        return {
            "planned": {
                "anonymous": plan.anonymous,
                "file": plan.file_backed,
                "peak": plan.needed,
            },
            **status(),
        }


def convert_checkpoint(
    source: str, target: str, scheme: str | None, *, quantized: bool = False
) -> dict[str, Any]:
    """Import, or quantize; the kinds' own peaks are sampled, since the kernel keeps only their sum's."""
    from edgeseek.cli import main
    from edgeseek.memory.footprint import footprint_of
    from edgeseek.package.conversion import conversion_threads
    from edgeseek.quantize.schemes import parse_rounding_scheme
    from edgeseek.settings import Settings
    from edgeseek.store import Store

    peaks = {"RssAnon": 0, "RssFile": 0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            now = status()
            peaks.update({kind: max(peak, now[kind]) for kind, peak in peaks.items()})

    settings = Settings(cache_dir=Path(target))
    wanted = parse_rounding_scheme("q4") if quantized else None
    if scheme is not None and not quantized:
        wanted = parse_rounding_scheme(scheme)
    threads = conversion_threads(settings)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        if quantized:
            output = str(Path(target) / "package")
            if main(["quantize", source, "--output", output, "--quantize", scheme or "int4"]):
                raise SystemExit("quantizing failed")
        else:
            Store(settings).pull(source, scheme=scheme)
    finally:
        done.set()
        watcher.join()
    # After the import, so that its own planning is part of what is measured.
    measured = {**status(), **peaks}
    peak = footprint_of(Path(source), scheme=wanted, threads=threads).conversion
    if peak is None:
        raise SystemExit(f"{source} is a package")
    planned = {"anonymous": peak.anonymous, "file": peak.file_backed, "peak": peak.needed}
    return {"planned": planned, **measured}


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "run":
        print(json.dumps(run(words[0], json.loads(words[1]))))
    elif what == "quantize":
        print(json.dumps(convert_checkpoint(words[0], words[1], words[2], quantized=True)))
    else:
        print(json.dumps(convert_checkpoint(words[0], words[1], words[2] or None)))
