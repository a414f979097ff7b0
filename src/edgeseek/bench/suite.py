"""Runs the measurements of one bench command, in an order that keeps them from disturbing each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from edgeseek.bench import roofline
from edgeseek.bench.memory_watch import MemoryWatch, process_memory, reset_peak
from edgeseek.bench.report import Report, Row
from edgeseek.bench.starts import first_byte_s
from edgeseek.bench.sustained import sustain
from edgeseek.bench.work import Workload, blocks_for, macs_per_token
from edgeseek.doctor.device import recognise
from edgeseek.engine.engine import STEP_TOKENS
from edgeseek.errors import RuntimeFailure
from edgeseek.llm import LLM
from edgeseek.memory.limits import memory_available
from edgeseek.runtime.backend import Backend
from edgeseek.runtime.native import NativeBackend
from edgeseek.settings import Settings

PREFILL = (128, 512, 2048)
DECODE = (128, 2048, 8192)
STREAMS = (1, 2, 4, 8, 16)
STREAM_CONTEXT = 128
WARM_UP_TOKENS = 64
PRELOADS = ("none", "populate", "lock", "copy")
#: Told the name of what is measured, how many parts are done and how many there are.
Progress = Callable[[str, int, int], None]

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What to measure; empty tuples leave a part out."""

    prefill: tuple[int, ...] = PREFILL
    decode: tuple[int, ...] = DECODE
    streams: tuple[int, ...] = STREAMS
    steps: int = 32
    repeat: int = 3
    roofline: bool = True
    starts: bool = True
    sustained_minutes: float = 0.0

    @property
    def context(self) -> int:
        """Positions that the largest part needs, all its streams together."""
        single = max((*self.prefill, *self.decode, STREAM_CONTEXT))
        return max(single, STREAM_CONTEXT * max(self.streams, default=1))

    def fitting(self, positions: int, model_context: int) -> tuple[Plan, list[str]]:
        """What a pool of `positions` and a model of `model_context` hold, and a line for what is left out."""
        skipped = []

        def keep(name: str, sizes: tuple[int, ...], each: int, most: int, why: str) -> tuple[int, ...]:
            kept = tuple(size for size in sizes if size * each <= most)
            lost = [str(size) for size in sizes if size not in kept]
            if lost:
                skipped.append(f"{name} {', '.join(lost)}: {why}")
            return kept

        longest = min(positions, model_context)
        why = f"the model and the memory hold {longest} tokens"
        return (
            Plan(
                prefill=keep("prefill", self.prefill, 1, longest, why),
                decode=keep("decode at context", self.decode, 1, longest, why),
                streams=keep(
                    "streams", self.streams, STREAM_CONTEXT, positions, f"memory holds {positions} tokens"
                ),
                steps=self.steps,
                repeat=self.repeat,
                roofline=self.roofline,
                starts=self.starts,
                sustained_minutes=self.sustained_minutes,
            ),
            skipped,
        )


def run_suite(
    llm: LLM, wanted: Plan, settings: Settings, *, largest_context: int, progress: Progress
) -> Report:
    """Measure `wanted` on a loaded model. After Ctrl-C the report holds what was measured until then."""
    backend = llm.backend
    if not isinstance(backend, NativeBackend):
        raise RuntimeFailure("bench measures the native backend only")
    report = Report(recognise(settings), llm.name, backend.threads, backend.isa, largest_context)
    plan, report.skipped = wanted.fitting(llm.plan.blocks * 32, llm.config.max_context)
    with MemoryWatch(settings) as watch, suppress(KeyboardInterrupt):
        report.interrupted = True
        _Suite(llm, backend, plan, settings, report, progress).run()
        report.interrupted = False
    report.least_available = watch.minimum
    return report


class _Suite:
    def __init__(
        self,
        llm: LLM,
        backend: NativeBackend,
        plan: Plan,
        settings: Settings,
        report: Report,
        progress: Progress,
    ) -> None:
        self._llm, self._backend, self._plan = llm, backend, plan
        self._settings, self._report, self._progress = settings, report, progress
        self._done = 0
        self._stop = threading.Event()
        starts = 2 + len(PRELOADS) if plan.starts and llm.package_path is not None else 0
        self._parts = (
            1 + len(plan.prefill) + len(plan.decode) + len(plan.streams) + 2 * plan.roofline + starts
        )
        self._parts += plan.sustained_minutes > 0

    def run(self) -> None:
        """All parts. Speeds come between two measurements of the limits, since machines drift."""
        if self._plan.roofline:
            self._measure_limits()
            reset_peak(self._settings)
        # The first step maps the weights' pages and wakes the threads; it is not what is measured.
        self._part("warming up", WARM_UP_TOKENS, 1, lambda work: work.prefill(WARM_UP_TOKENS, 1))
        for tokens in self._plan.prefill:
            self._prefill(tokens)
        for context in self._plan.decode:
            self._decode("decode", context, context, 1)
        for streams in self._plan.streams:
            self._decode("streams", streams, STREAM_CONTEXT, streams)
        self._report.memory = process_memory(self._settings)
        if self._plan.roofline:
            self._measure_limits()
        if self._plan.sustained_minutes > 0:
            self._sustain()
        if self._plan.starts and self._llm.package_path is not None:
            self._measure_starts(self._llm.package_path)

    def _prefill(self, tokens: int) -> None:
        rate = self._part(f"prefill {tokens}", tokens, 1, lambda w: w.prefill(tokens, self._plan.repeat))
        cost = macs_per_token(self._llm.config)
        self._report.rows.append(Row("prefill", tokens, rate.tokens_per_s, rate.step_s, cost, "int8 peak"))

    def _decode(self, kind: Literal["decode", "streams"], amount: int, context: int, streams: int) -> None:
        plan = self._plan
        name = f"decode at {context}" if kind == "decode" else f"{streams} streams"
        rate = self._part(
            name, context, streams, lambda w: w.decode(context, streams, plan.steps, plan.repeat)
        )
        cached = self._backend.kv_bytes_per_token * (context - plan.steps / 2)
        cost = self._backend.bytes_per_token / streams + cached
        self._report.rows.append(
            Row(
                "decode" if kind == "decode" else "streams",
                amount,
                rate.tokens_per_s,
                rate.step_s,
                cost,
                "bandwidth",
            )
        )

    def _part(self, name: str, context: int, streams: int, work: Callable[[Workload], T]) -> T:
        """Run `work` on the engine's thread, with KV blocks of its own."""
        self._step(name)
        try:
            return self._llm.engine.borrow(
                blocks_for(context, streams), lambda backend, blocks: work(self._workload(backend, blocks))
            )
        except KeyboardInterrupt:
            # The engine's thread would go on to the end of the part, and closing the model waits for it.
            self._stop.set()
            raise

    def _workload(self, backend: Backend, blocks: Sequence[int]) -> Workload:
        return Workload(backend, blocks, step_tokens=STEP_TOKENS, stop=self._stop)

    def _measure_limits(self) -> None:
        self._step("limits of the machine")
        available = memory_available(self._settings).deciding.available
        found = roofline.measure(self._backend.threads, available, self._backend.isa)
        known = self._report.roofline
        self._report.roofline = found if known is None else known.best_with(found)

    def _measure_starts(self, package: Path) -> None:
        options = start_options(self._backend)
        for name, extra, cold in (
            ("cold", [], True),
            ("warm", [], False),
            *((f"warm, --preload {p}", ["--preload", p], False) for p in PRELOADS),
        ):
            self._step(f"start, {name}")
            try:
                seconds = first_byte_s(package, [*options, *extra], self._plan.repeat, cold=cold)
            except RuntimeFailure as error:
                self._report.skipped.append(f"start, {name}: {error}")
            else:
                self._report.starts[name] = seconds

    def _sustain(self) -> None:
        minutes = self._plan.sustained_minutes
        self._report.sustained = self._part(
            "sustained",
            STREAM_CONTEXT,
            1,
            lambda work: sustain(
                work,
                STREAM_CONTEXT,
                minutes,
                self._settings,
                tick=lambda seconds: self._progress(f"sustained {seconds:.0f} s", self._done, self._parts),
            ),
        )

    def _step(self, name: str) -> None:
        self._progress(name, self._done, self._parts)
        self._done += 1


def start_options(backend: NativeBackend) -> list[str]:
    """What a fresh `edgeseek run` is given so that it starts as the measured model did."""
    return ["--threads", str(backend.threads), "--kv", backend.kv_type]
