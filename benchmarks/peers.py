"""Run llama.cpp and edgeseek side by side on the same GGUF and print how they compare.

    python benchmarks/peers.py MODEL.gguf... [--rounds 5] [--threads N] [--peer-python PATH] [--growth]

Every measurement is a fresh process; the engines alternate (A B A B ...) and the medians are compared.
llama.cpp is taken through llama-cpp-python at its best of flash attention off and on; build it from source
(`pip install --no-binary llama-cpp-python llama-cpp-python`) so that it is compiled for this machine. Start
is from exec to the first byte of the answer. Where llama.cpp is not installed, edgeseek is measured alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.work import Result, Work  # noqa: E402  (the script's own folder is on the path, not its parent)

PLAIN, FLASH, OURS = "llama.cpp", "llama.cpp, flash attention", "edgeseek"
#: An unfinished sentence of about 32 tokens, which no model ends at once.
PROMPT = (
    "The river comes down from the mountains in the north, runs through three old towns with stone bridges, "
    "past mills and orchards, and then on to the"
)
MEGABYTE = 1e6


@dataclass(frozen=True)
class Contender:
    """An engine as it is started."""

    name: str
    python: str
    #: Module that measures, and the arguments that answer one prompt with one token.
    worker: str
    start: tuple[str, ...]
    work: Work
    #: Files whose pages a cold start drops from the cache first.
    files: tuple[Path, ...]


@dataclass
class Samples:
    """All measurements of one contender on one model."""

    results: list[Result] = field(default_factory=list)
    warm_s: list[float] = field(default_factory=list)
    cold_s: list[float] = field(default_factory=list)

    def median(self, name: str) -> float:
        """Median of a field of the results, or of one of the start lists."""
        if name in ("warm_s", "cold_s"):
            return float(statistics.median(getattr(self, name)))
        return float(statistics.median(getattr(result, name) for result in self.results))


def child(python: str, arguments: Sequence[str]) -> str:
    """Standard output of a process that must succeed."""
    done = subprocess.run([python, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)[:200]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def seconds_to_first_byte(python: str, arguments: Sequence[str]) -> float:
    """From exec to the first byte on stdout; the process then runs to its end."""
    started = time.perf_counter()
    with subprocess.Popen(
        [python, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        output = process.stdout
        if output is None or not os.read(output.fileno(), 1):
            raise SystemExit(
                f"{' '.join(arguments)[:200]} wrote no answer:\n{process.communicate()[1][-2000:]!r}"
            )
        elapsed = time.perf_counter() - started
        process.communicate()
    return elapsed


def drop_from_cache(files: Sequence[Path]) -> None:
    """Ask the kernel to forget the pages of these files."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def contenders(model: str, package: str, peer_python: str | None, base: Work) -> Iterator[Contender]:
    """The engines in the order in which a round runs them."""
    if peer_python is not None:
        for name, flash in ((PLAIN, False), (FLASH, True)):
            work = replace(base, model=model, flash=flash)
            start = ("-m", "benchmarks.start_llamacpp", *work.arguments())
            yield Contender(name, peer_python, "benchmarks.worker_llamacpp", start, work, (Path(model),))
    files = tuple(path for path in Path(package).iterdir() if path.is_file())
    start = ("-m", "edgeseek", "run", package, "--raw", "--prompt", PROMPT, "--max-tokens", "1")
    start += ("--threads", str(base.threads), "--context", str(base.context))
    yield Contender(
        OURS, sys.executable, "benchmarks.worker_edgeseek", start, replace(base, model=package), files
    )


def measure(contender: Contender, *, starts: bool, samples: Samples) -> None:
    """Add one round of one contender to its samples."""
    output = child(contender.python, ["-m", contender.worker, *contender.work.arguments()])
    samples.results.append(Result(**json.loads(output.splitlines()[-1])))
    if starts:
        samples.warm_s.append(seconds_to_first_byte(contender.python, contender.start))
        drop_from_cache(contender.files)
        samples.cold_s.append(seconds_to_first_byte(contender.python, contender.start))


def rounds(engines: Sequence[Contender], count: int, *, starts: bool) -> tuple[dict[str, Samples], float]:
    """Alternate the engines `count` times; also the median bandwidth measured between them, bytes/s."""
    samples = {engine.name: Samples() for engine in engines}
    bandwidths = []
    for number in range(count):
        bandwidths.append(
            float(child(sys.executable, ["-m", "benchmarks.roofline", str(engines[0].work.threads)]))
        )
        for engine in engines:
            print(f"round {number + 1} of {count}: {engine.name}", file=sys.stderr, flush=True)
            measure(engine, starts=starts, samples=samples[engine.name])
    return samples, statistics.median(bandwidths)


#: (label, field, unit's divisor, decimals, more is better)
ROWS = (
    ("prefill, tok/s", "prefill_tokens_per_s", 1.0, 1, True),
    ("decode of one stream, tok/s", "decode_tokens_per_s", 1.0, 1, True),
    ("streams together, tok/s", "streams_tokens_per_s", 1.0, 1, True),
    ("peak RSS, MB", "peak_rss_bytes", MEGABYTE, 0, False),
    ("  of it anonymous, MB", "anonymous_bytes", MEGABYTE, 0, False),
    ("  of it file-backed, MB", "file_bytes", MEGABYTE, 0, False),
    ("start to first byte, warm, s", "warm_s", 1.0, 2, False),
    ("start to first byte, cold, s", "cold_s", 1.0, 2, False),
)


def comparison(samples: dict[str, Samples], *, starts: bool) -> list[dict[str, Any]]:
    """One record per row of the table; the ratio is ours to the better of the peer's two."""
    records = []
    for label, name, divisor, decimals, more in ROWS:
        if name.endswith("_s") and name.startswith(("warm", "cold")) and not starts:
            continue
        values = {engine: taken.median(name) / divisor for engine, taken in samples.items()}
        peers = [value for engine, value in values.items() if engine != OURS]
        best = (max(peers) if more else min(peers)) if peers else None
        ratio = values[OURS] / best if best else None
        records.append({"measure": label, "values": values, "ratio": ratio, "decimals": decimals})
    return records


def table(records: Sequence[dict[str, Any]]) -> str:
    """The comparison as Markdown."""
    names = list(records[0]["values"])
    lines = ["| | " + " | ".join(names) + " | ratio |", "|---|" + "---|" * (len(names) + 1)]
    for record in records:
        cells = [f"{record['values'][name]:.{record['decimals']}f}" for name in names]
        ratio = "–" if record["ratio"] is None else f"{record['ratio']:.2f}"
        lines.append(f"| {record['measure'].replace('  ', '– ')} | " + " | ".join([*cells, ratio]) + " |")
    return "\n".join(lines)


def growth(model: str, package: str, peer_python: str | None, base: Work) -> list[dict[str, Any]]:
    """One round at each of several sizes: how the cost grows with context, streams and threads."""
    variants = [replace(base, prompt_tokens=tokens) for tokens in (512, 2048, 8192 - base.new_tokens - 8)]
    variants += [replace(base, streams=streams) for streams in (1, 4, 8)]
    variants += [replace(base, threads=threads) for threads in range(1, base.threads)]
    records = []
    for work in variants:
        samples, _ = rounds(list(contenders(model, package, peer_python, work)), 1, starts=False)
        for name, taken in samples.items():
            result = taken.results[0]
            records.append({"engine": name, **asdict(work), **asdict(result), "model": Path(model).name})
    return records


def growth_table(records: Sequence[dict[str, Any]]) -> str:
    """The growth records as Markdown."""
    columns = ("engine", "prompt_tokens", "streams", "threads")
    rates = ("prefill_tokens_per_s", "decode_tokens_per_s", "streams_tokens_per_s")
    lines = [
        "| engine | prompt | streams | threads | prefill, tok/s | decode, tok/s | together, tok/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in records:
        cells = [str(record[name]) for name in columns] + [f"{record[name]:.1f}" for name in rates]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run_model(model: str, options: argparse.Namespace, peer_python: str | None) -> dict[str, Any]:
    """Everything that is measured on one GGUF."""
    prepared = json.loads(child(sys.executable, ["-m", "benchmarks.prepare", model]).splitlines()[-1])
    base = Work(model, options.threads)
    engines = list(contenders(model, prepared["path"], peer_python, base))
    samples, bandwidth = rounds(engines, options.rounds, starts=True)
    ours = samples[OURS]
    allowed = prepared["bytes"] + ours.results[0].kv_bytes + 100 * MEGABYTE
    record: dict[str, Any] = {
        "model": Path(model).name,
        "threads": options.threads,
        "rounds": options.rounds,
        "instruction_set": prepared["isa"],
        "comparison": comparison(samples, starts=True),
        "bandwidth_bytes_per_s": bandwidth,
        "decode_efficiency": ours.results[0].token_bytes * ours.median("decode_tokens_per_s") / bandwidth,
        "peak_rss_bytes": ours.median("peak_rss_bytes"),
        "peak_rss_allowed_bytes": allowed,
    }
    if options.growth:
        record["growth"] = growth(model, prepared["path"], peer_python, base)
    return record


def describe(record: dict[str, Any]) -> str:
    """One model's record as Markdown."""
    bandwidth, efficiency = record["bandwidth_bytes_per_s"] / 1e9, record["decode_efficiency"]
    peak, allowed = record["peak_rss_bytes"] / MEGABYTE, record["peak_rss_allowed_bytes"] / MEGABYTE
    settings = f"{record['threads']} threads, {record['instruction_set']}"
    lines = [
        f"## {record['model']}",
        "",
        f"{settings}, medians of {record['rounds']} alternating rounds",
        "",
        table(record["comparison"]),
        "",
        f"Bandwidth of a read-only sweep: {bandwidth:.1f} GB/s; decode reads at {efficiency:.0%} of it.",
        f"Peak RSS {peak:.0f} MB; package + KV + 100 MB is {allowed:.0f} MB.",
    ]
    if "growth" in record:
        lines += ["", growth_table(record["growth"])]
    return "\n".join(lines)


def find_peer(python: str) -> str | None:
    """`python` if llama-cpp-python is installed there."""
    done = subprocess.run([python, "-c", "import llama_cpp"], capture_output=True, check=False)
    if done.returncode == 0:
        return python
    print(f"llama-cpp-python is not installed for {python}: edgeseek is measured alone", file=sys.stderr)
    return None


def main() -> None:
    """Measure the models of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has llama-cpp-python")
    parser.add_argument("--growth", action="store_true", help="also one round at several sizes (takes long)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of Markdown")
    options = parser.parse_args()
    peer_python = find_peer(options.peer_python)
    records = [run_model(str(Path(model).resolve()), options, peer_python) for model in options.models]
    print(
        json.dumps(records, indent=1) if options.json else "\n\n".join(describe(record) for record in records)
    )


if __name__ == "__main__":
    main()
