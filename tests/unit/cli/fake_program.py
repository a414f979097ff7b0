"""The command as a process of its own, with a fake model that answers slowly. Run with `python -m`."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeseek.cli import main
from edgeseek.cli.services import Services
from edgeseek.cli.terminal import Terminal
from edgeseek.engine import Chunk
from edgeseek.settings import Settings
from tests.unit.cli.fakes import FakeLLM


class SlowLLM(FakeLLM):
    """Counts for a long time, about a hundred numbers a second, after an emoji."""

    def _answer(self, how: str, what: Any, params: Any) -> Iterator[Chunk]:
        yield Chunk(f"{what if how == 'generate' else ''}😀 ", (0,))
        for number in itertools.count(1):
            time.sleep(0.01)
            yield Chunk(f"{number} ", (number,))
            if number == params.max_tokens:
                return


if __name__ == "__main__":
    llm = SlowLLM()
    services = Services(Settings(Path("/nonexistent")), Terminal.of_process(), load=llm.load)  # type: ignore[arg-type]
    sys.exit(main(services=services))
