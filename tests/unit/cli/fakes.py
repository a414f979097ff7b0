"""A model, a store and streams that the commands are given in tests instead of the real ones."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgeseek.architectures.spec import ModelConfig
from edgeseek.cli import main
from edgeseek.cli.services import Services
from edgeseek.cli.terminal import Terminal
from edgeseek.engine import Chunk, SamplingParams, Timings
from edgeseek.memory.limits import MemoryLimit, MemoryLimits
from edgeseek.memory.planner import MemoryPlan, plan
from edgeseek.settings import Settings

CONFIG = ModelConfig(
    architecture="llama",
    vocab_size=1000,
    hidden_size=64,
    intermediate_size=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    max_context=2048,
    rms_eps=1e-5,
)
TIMINGS = Timings(
    queue_s=0.0,
    prefill_s=0.5,
    decode_s=2.0,
    first_token_s=0.5,
    total_s=2.5,
    prompt_tokens=50,
    cached_tokens=0,
    completion_tokens=3,
    decode_tokens=200,
)
GIB = 1 << 30


class Stream(io.StringIO):
    """A StringIO that may claim to be a terminal."""

    def __init__(self, text: str = "", *, terminal: bool = False) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@dataclass
class FakeLLM:
    """Answers every request with the same pieces and remembers how it was asked."""

    pieces: Sequence[str] = ("Blue ", "light ", "scatters.")
    chat_template: str | None = "{{ messages }}"
    #: Raised before the piece of this index, once.
    raises: dict[int, BaseException] = field(default_factory=dict)
    default_params: SamplingParams = field(default_factory=SamplingParams)
    name: str = "fake-model"
    asked: list[tuple[str, Any, SamplingParams]] = field(default_factory=list)
    closed: bool = False
    load_options: dict[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> MemoryPlan:
        return plan(CONFIG, 1000, limits=MemoryLimits((MemoryLimit("MemAvailable", 4 * GIB, 3 * GIB),)))

    def load(self, model: str, **options: Any) -> FakeLLM:
        self.load_options = {"model": model, **options}
        options["report"](f"{self.name}: {self.plan.summary}")
        return self

    def chat(self, messages: Sequence[Any], params: SamplingParams) -> Iterator[Chunk]:
        return self._answer("chat", [dict(message) for message in messages], params)

    def generate(self, prompt: str, params: SamplingParams) -> Iterator[Chunk]:
        return self._answer("generate", prompt, params)

    def close(self) -> None:
        self.closed = True

    def _answer(self, how: str, what: Any, params: SamplingParams) -> Iterator[Chunk]:
        self.asked.append((how, what, params))
        for index, piece in enumerate(self.pieces):
            if index in self.raises:
                raise self.raises.pop(index)
            yield Chunk(piece, (index,))
        yield Chunk("", (), finish_reason="stop", timings=TIMINGS, seed=7)


@dataclass
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The one line of an error."""
        lines = self.err.splitlines()
        if len(lines) != 1:
            raise AssertionError(f"expected one line on stderr, found {lines}")
        return lines[0]


class Console:
    """Runs commands with injected services."""

    def __init__(self, root: Path, llm: FakeLLM | None = None) -> None:
        self.llm = llm or FakeLLM()
        proc = root / "proc"
        (proc / "self").mkdir(parents=True)
        (proc / "self/status").write_text("VmHWM:\t  2000 kB\n")
        self.settings = Settings(cache_dir=root / "cache", proc_root=proc, sys_root=root / "sys")
        self.changes: dict[str, Any] = {}

    def run(self, *words: str, stdin: str = "", terminal: bool = False) -> Outcome:
        """Run a command; `terminal` makes all three streams terminals."""
        stdout, stderr = Stream(terminal=terminal), Stream(terminal=terminal)
        ticks = itertools.count()
        services = Services(
            settings=self.settings,
            terminal=Terminal(Stream(stdin, terminal=terminal), stdout, stderr),
            load=self.llm.load,  # type: ignore[arg-type]
            clock=lambda: next(ticks) * 0.25,
        )
        code = main(words, replace(services, **self.changes))
        return Outcome(code, stdout.getvalue(), stderr.getvalue())
