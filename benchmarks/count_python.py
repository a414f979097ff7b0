"""Bytecode instructions of the Python side of engine steps, by function, on a small fixed workload.

Callgrind's counts of an interpreter change with hash seeds, addresses and the interpreter's build, and take a
minute to get. The number of bytecode instructions that our own modules execute is the same in every run of
one Python version, and grows with whatever makes a step slower on the Python side.

python -m benchmarks.count_python
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

from edgeseek.engine import Engine, SamplingParams
from tests.make_models.tiny import CASES, prompt_ids
from tests.synthetic.models import backend_of, package_of
from tests.unit.engine.fake_backend import FakeTokenizer

REQUESTS = 3
PROMPT = 40
NEW_TOKENS = 24


def traces_repeat(version: tuple[object, ...]) -> bool:
    """Whether this Python reports every instruction of a frame that asks for it.

    From 3.12 on, tracing rests on instrumented code, and frames that run when the first one asks are missed.
    """
    return version[:2] in {(3, 10), (3, 11)}


class OpcodeCounter:
    """A trace function that counts bytecode instructions of edgeseek's modules inside Engine.step."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._inside = threading.local()

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """Called for each new frame."""
        if event != "call" or not frame.f_globals.get("__name__", "").startswith("edgeseek."):
            return None
        if frame.f_code is Engine.step.__code__:
            self._inside.step = True
        elif not getattr(self._inside, "step", False):
            return None
        frame.f_trace_opcodes = True
        return self._local

    def _local(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            self.counts[f"{frame.f_globals['__name__']}.{_name(frame)}"] += 1
        elif event == "return" and frame.f_code is Engine.step.__code__:
            self._inside.step = False
        return self._local


def _name(frame: FrameType) -> str:
    # A comprehension is a function of its own before Python 3.12; its maker's name is clearer.
    code = frame.f_code
    if code.co_name.startswith("<") and frame.f_back is not None:
        code = frame.f_back.f_code
    return str(getattr(code, "co_qualname", code.co_name))


def count_python(folder: Path) -> dict[str, int]:
    """Bytecode instructions by function of a few requests that start together and decode together."""
    model = CASES["llama-tied"]
    package = package_of(model, folder, "f32")
    ticks = itertools.count()
    counter = OpcodeCounter()
    with closing(backend_of(package, REQUESTS * (PROMPT + NEW_TOKENS) + 96, threads=1)) as backend:
        threading.settrace(counter)
        try:
            # Each look at the clock is one millisecond later than the one before, so that the choice of how
            # many tokens to propose is the same in every run.
            engine = Engine(backend, FakeTokenizer(), clock=lambda: next(ticks) / 1000)
        finally:
            threading.settrace(None)
        with engine:
            prompts = [prompt_ids(model, PROMPT + 3 * i) for i in range(REQUESTS)]
            for generation in _submitted_together(engine, prompts):
                generation.join()
    return dict(sorted(counter.counts.items()))


def _submitted_together(engine: Engine, prompts: list[list[int]]) -> list[Any]:
    """Submit all prompts while the engine's thread is held, so that all are admitted before the next step."""
    held, release = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        held.set()
        release.wait()

    holder = threading.Thread(target=engine.borrow, args=(1, hold))
    holder.start()
    held.wait()
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    generations = [engine.submit(prompt, params) for prompt in prompts]
    release.set()
    holder.join()
    return generations


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        json.dump(count_python(Path(temporary)), sys.stdout)
