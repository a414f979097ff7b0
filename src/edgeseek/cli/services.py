"""What the commands work with, in one value that `main` builds and a test can replace.

Everything slow to import is behind a function, so that `edgeseek --help` stays quick.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgeseek.cli.terminal import Terminal
from edgeseek.settings import Settings

if TYPE_CHECKING:
    import typer

    from edgeseek.calibration import PerplexityResult
    from edgeseek.doctor import Examination
    from edgeseek.llm import LLM
    from edgeseek.store import Store


def _load(model: str, **options: Any) -> LLM:
    # numpy's linear algebra would start a thread for each processor, and they spin while nothing uses them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from edgeseek.llm import LLM

    return LLM.load(model, **options)


def _perplexity(
    llm: LLM, text: str, window: int, *, progress: Callable[[str, int, int | None], None]
) -> PerplexityResult:
    from edgeseek.calibration import perplexity

    return perplexity(llm, text, window, progress=progress)


def _open_store(settings: Settings) -> Store:
    from edgeseek.store import Store

    return Store(settings)


def _examine(settings: Settings) -> Examination:
    from edgeseek.doctor import Probes, examine

    return examine(Probes.of_process(settings))


@dataclass(frozen=True)
class Services:
    """The process as a command sees it: settings, streams, the model loader, the store, a clock."""

    settings: Settings
    terminal: Terminal
    #: Called as LLM.load is.
    load: Callable[..., LLM] = _load
    open_store: Callable[[Settings], Store] = _open_store
    #: Called as calibration.perplexity is.
    perplexity: Callable[..., PerplexityResult] = _perplexity
    #: What the doctor finds on the machine of these settings.
    examine: Callable[[Settings], Examination] = _examine
    #: Monotonic seconds.
    clock: Callable[[], float] = field(default=time.monotonic)

    @classmethod
    def of_process(cls, environ: Mapping[str, str] | None = None) -> Services:
        """This process's environment and streams. Raises UsageError for a bad variable."""
        settings = Settings.from_environment(os.environ if environ is None else environ)
        return cls(settings, Terminal.of_process())


def services_of(context: typer.Context) -> Services:
    """The services that `main` gave to this command."""
    return context.find_object(Services) or Services.of_process()
