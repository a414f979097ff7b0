"""Two processes that pull the same model do not write over each other."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

from edgeseek.checkpoints.transfer import exclusive


def _hold(folder: Path, log: Path, name: str) -> None:
    with exclusive(folder):
        with log.open("a") as file:
            file.write(f"{name} in\n")
        time.sleep(0.2)
        with log.open("a") as file:
            file.write(f"{name} out\n")


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_hold, args=(tmp_path / "into", log, name)) for name in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    lines = log.read_text().split()
    assert lines[0] == lines[2]
    assert lines[4] == lines[6]
    assert lines[1::2] == ["in", "out", "in", "out"]
