"""Progress of downloads, conversions and other long work: bars on a terminal, a line per stage elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from edgeseek.cli.terminal import Terminal
from edgeseek.cli.text import size

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress:
    """Called with (stage, done, in all or None if unknown); draws on stderr. Use it with `with`.

    Counts bytes, or tokens where `counts_tokens`.
    Draws nothing until it is called, so that work that is already done costs no line.
    """

    def __init__(self, terminal: Terminal, *, counts_tokens: bool = False) -> None:
        self._terminal = terminal
        self._counts_tokens = counts_tokens
        self._bars: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._announced: set[str] = set()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def note(self, text: str) -> None:
        """One line on stderr, below the bars so far."""
        self._stop()
        self._terminal.note(text)

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        if not self._terminal.stderr_is_terminal:
            self._announce(stage, total)
            return
        bars = self._started()
        if stage not in self._tasks:
            self._tasks[stage] = bars.add_task(stage, total=total)
        bars.update(self._tasks[stage], completed=done, total=total)

    def step(self, name: str, done: int, total: int) -> None:
        """Say what is being done, as part `done` of `total`: on a terminal only, in one line that changes."""
        if not self._terminal.stderr_is_terminal:
            return
        bars = self._started()
        if "step" not in self._tasks:
            self._tasks["step"] = bars.add_task(name, total=total)
        bars.update(self._tasks["step"], description=name, completed=done, total=total)

    def _stop(self) -> None:
        """Leave the bars as they stand; the next stage starts new ones."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._tasks.clear()

    def _announce(self, stage: str, total: int | None) -> None:
        if stage not in self._announced:
            self._announced.add(stage)
            amount = "" if total is None else f" ({self._amount(total)})"
            self._terminal.note(stage + amount)

    def _amount(self, count: int) -> str:
        return f"{count:,} tokens" if self._counts_tokens else size(count)

    def _started(self) -> RichProgress:
        if self._bars is None:
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )
            from rich.progress import Progress as RichProgress

            amounts = (
                (MofNCompleteColumn(),) if self._counts_tokens else (DownloadColumn(), TransferSpeedColumn())
            )
            self._bars = RichProgress(
                # Plain text: a model's name may hold what rich takes for markup.
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                *amounts,
                TimeRemainingColumn(),
                console=self._terminal.console(),
            )
            self._bars.start()
        return self._bars
