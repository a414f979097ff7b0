"""The engines that are compared, which of them are installed, and how each is started.

Standard library only: an engine is imported by its own worker, in the interpreter that has it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.work import Work

OURS = "edgeseek"
#: An unfinished sentence of about 32 tokens, which no model ends at once.
PROMPT = (
    "The river comes down from the mountains in the north, runs through three old towns with stone bridges, "
    "past mills and orchards, and then on to the"
)


@dataclass(frozen=True)
class Engine:
    """A peer: what must be importable, which distribution tells its version, and its two modules here."""

    name: str
    module: str
    distribution: str
    worker: str
    start: str


LLAMACPP = Engine(
    "llama.cpp", "llama_cpp", "llama-cpp-python", "benchmarks.worker_llamacpp", "benchmarks.start_llamacpp"
)
OPENVINO = Engine(
    "OpenVINO GenAI",
    "openvino_genai",
    "openvino-genai",
    "benchmarks.worker_openvino",
    "benchmarks.start_openvino",
)
ORT = Engine(
    "ONNX Runtime GenAI",
    "onnxruntime_genai",
    "onnxruntime-genai",
    "benchmarks.worker_ort",
    "benchmarks.start_ort",
)
ENGINES = (LLAMACPP, OPENVINO, ORT)


@dataclass(frozen=True)
class Installed:
    """An engine in an interpreter."""

    engine: Engine
    python: str
    version: str


@dataclass(frozen=True)
class Contender:
    """An engine as it is started; `family` is the engine whose variants share one ratio."""

    name: str
    family: str
    python: str
    #: Module that measures, and the arguments that answer one prompt with one token.
    worker: str
    start: tuple[str, ...]
    work: Work
    #: Files whose pages a cold start drops from the cache first.
    files: tuple[Path, ...]


#: Prints {module: version} of those modules of the command line that can be imported.
_PROBE = """
import importlib, importlib.metadata, json, sys
found = {}
for module, distribution in json.loads(sys.argv[1]):
    try:
        importlib.import_module(module)
        found[module] = importlib.metadata.version(distribution)
    except ImportError:
        pass
print(json.dumps(found))
"""


def versions(python: str) -> dict[str, str]:
    """{module: version} of the engines that `python` can import. Raises SystemExit if it cannot be run."""
    wanted = json.dumps([(engine.module, engine.distribution) for engine in ENGINES])
    try:
        done = subprocess.run([python, "-c", _PROBE, wanted], capture_output=True, text=True, check=False)
    except OSError as error:
        raise SystemExit(
            f"{python} cannot be run ({error.strerror}); give --peer-python an interpreter"
        ) from error
    if done.returncode != 0:
        raise SystemExit(f"{python} cannot tell which engines it has:\n{done.stderr[-2000:]}")
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def choose(found: Mapping[str, Mapping[str, str]]) -> list[Installed]:
    """Each engine once, from the first interpreter of {python: {module: version}} that has it."""
    chosen = []
    for engine in ENGINES:
        for python, modules in found.items():
            if engine.module in modules:
                chosen.append(Installed(engine, python, modules[engine.module]))
                break
    return chosen


def files_of(folder: str) -> tuple[Path, ...]:
    """The files directly in a model's folder."""
    return tuple(path for path in sorted(Path(folder).iterdir()) if path.is_file())


def contenders(
    model: str, package: str, ort_model: str | None, peers: Sequence[Installed], base: Work
) -> Iterator[Contender]:
    """Who runs in a round, in order: the peers, llama.cpp without and with flash attention, then edgeseek.

    `model` is the GGUF, `package` ours made from it, `ort_model` a folder of ONNX Runtime GenAI or None.
    """
    for peer in peers:
        if peer.engine is ORT:
            if ort_model is not None:
                yield _peer(ORT.name, peer, replace(base, model=ort_model), files_of(ort_model))
            continue
        yield _peer(peer.engine.name, peer, replace(base, model=model), (Path(model),))
        if peer.engine is LLAMACPP:
            flash = replace(base, model=model, flash=True)
            yield _peer(f"{LLAMACPP.name}, flash attention", peer, flash, (Path(model),))
    start: tuple[str, ...] = ("-m", "edgeseek", "run", package, "--raw", "--prompt", PROMPT)
    start += ("--max-tokens", "1", "--threads", str(base.threads), "--context", str(base.context))
    work = replace(base, model=package)
    yield Contender(OURS, OURS, sys.executable, "benchmarks.worker_edgeseek", start, work, files_of(package))


def _peer(name: str, peer: Installed, work: Work, files: tuple[Path, ...]) -> Contender:
    start = ("-m", peer.engine.start, *work.arguments())
    return Contender(name, peer.engine.name, peer.python, peer.engine.worker, start, work, files)
