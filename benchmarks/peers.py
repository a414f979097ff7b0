"""Run the engines that are installed and edgeseek side by side on the same GGUF and show how they compare.

    python benchmarks/peers.py MODEL.gguf... [--rounds 5] [--threads N] [--peer-python PATH]...
        [--ort-model FOLDER]... [--write docs/benchmarks.md] [--growth] [--json]

Every measurement is a fresh process; the engines alternate (A B C A B C ...) and the medians are compared.
All get the same token ids, new-token counts and threads, decode greedily and do not speculate.

* llama.cpp is taken through llama-cpp-python at its best of flash attention off and on; build it from source
  (`pip install --no-binary llama-cpp-python llama-cpp-python`) so that it is compiled for this machine.
* OpenVINO GenAI (`pip install openvino-genai`) reads the same GGUF; it keeps keys and values in 8 bits.
* ONNX Runtime GenAI (`pip install onnxruntime-genai`) reads a folder of its own model builder, given with
  --ort-model for each MODEL in turn.

Start is from exec to the first byte of the answer. What an engine cannot run is left out with its reason;
where none is installed, edgeseek is measured alone. --write puts each model's table between a page's markers.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.peer_engines import (
    OURS,
    Contender,
    Installed,
    choose,
    contenders,
    versions,
)
from benchmarks.peer_runs import ChildError, child, rounds
from benchmarks.peer_tables import MEGABYTE, comparison, describe, with_model
from benchmarks.work import Work


def growth(
    model: str, package: str, ort_model: str | None, peers: Sequence[Installed], base: Work
) -> list[dict[str, Any]]:
    """One round at each of several sizes: how the cost grows with context, streams and threads."""
    variants = [replace(base, prompt_tokens=tokens) for tokens in (512, 2048, 8192 - base.new_tokens - 8)]
    variants += [replace(base, streams=streams) for streams in (1, 4, 8)]
    variants += [replace(base, threads=threads) for threads in range(1, base.threads)]
    records = []
    for work in variants:
        measured = rounds(list(contenders(model, package, ort_model, peers, work)), 1, starts=False)
        for name, taken in measured.samples.items():
            result = taken.results[0]
            records.append({"engine": name, **asdict(work), **asdict(result), "model": Path(model).name})
    return records


def run_model(
    model: str, ort_model: str | None, options: argparse.Namespace, peers: Sequence[Installed]
) -> dict[str, Any]:
    """Everything that is measured on one GGUF. Raises ChildError if edgeseek cannot be measured."""
    prepared = json.loads(child(sys.executable, ["-m", "benchmarks.prepare", model]).splitlines()[-1])
    base = Work(model, options.threads)
    engines = list(contenders(model, prepared["path"], ort_model, peers, base))
    measured = rounds(engines, options.rounds, starts=True)
    ours = measured.samples[OURS]
    peak, rate = ours.median("peak_rss_bytes"), ours.median("decode_tokens_per_s")
    if peak is None or rate is None:
        raise SystemExit("no round was measured; give --rounds 1 or more")
    record: dict[str, Any] = {
        "model": Path(model).name,
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "device": prepared["device"],
        "versions": named_versions(engines, peers, prepared["version"]),
        "threads": options.threads,
        "rounds": options.rounds,
        "instruction_set": prepared["isa"],
        "comparison": comparison(measured.samples),
        "failures": measured.failures,
        "bandwidth_bytes_per_s": measured.bandwidth,
        "decode_efficiency": ours.results[0].token_bytes * rate / measured.bandwidth,
        "peak_rss_bytes": peak,
        "peak_rss_allowed_bytes": prepared["bytes"] + ours.results[0].kv_bytes + 100 * MEGABYTE,
    }
    if options.growth:
        record["growth"] = growth(model, prepared["path"], ort_model, peers, base)
    return record


def named_versions(engines: Sequence[Contender], peers: Sequence[Installed], own: str) -> dict[str, str]:
    """{engine: version} of those that take part."""
    present = {engine.family for engine in engines}
    found = {peer.engine.name: peer.version for peer in peers if peer.engine.name in present}
    return {**found, OURS: own}


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Exits with a message if it does not fit together."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--peer-python",
        action="append",
        metavar="PATH",
        help="an interpreter that has peers installed, once or more (default: this one)",
    )
    parser.add_argument(
        "--ort-model",
        action="append",
        metavar="FOLDER",
        help="the model for ONNX Runtime GenAI, once for each MODEL.gguf, in the same order",
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="replace the tables in a page, such as docs/benchmarks.md"
    )
    parser.add_argument("--growth", action="store_true", help="also one round at several sizes (takes long)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of Markdown")
    options = parser.parse_args(arguments)
    if options.ort_model and len(options.ort_model) != len(options.models):
        counts = f"{len(options.ort_model)} --ort-model for {len(options.models)} models"
        parser.error(f"{counts}: give each its own, in order")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: give 1 or more")
    return options


def main() -> None:
    """Measure the models of the command line."""
    options = parse_arguments()
    peers = choose({python: versions(python) for python in options.peer_python or [sys.executable]})
    if not peers:
        print("no peer is installed in the interpreters given: edgeseek is measured alone", file=sys.stderr)
    folders: list[str | None] = [str(Path(folder).resolve()) for folder in options.ort_model or ()]
    records = []
    for model, folder in zip(options.models, folders or [None] * len(options.models), strict=True):
        try:
            record = run_model(str(Path(model).resolve()), folder, options, peers)
            if options.write:
                page = options.write.read_text(encoding="utf-8")
                text = with_model(page, record["model"], describe(record))
                options.write.write_text(text, encoding="utf-8")
        except (ChildError, OSError, ValueError) as error:
            raise SystemExit(str(error)) from error
        records.append(record)
    print(
        json.dumps(records, indent=1) if options.json else "\n\n".join(describe(record) for record in records)
    )


if __name__ == "__main__":
    main()
