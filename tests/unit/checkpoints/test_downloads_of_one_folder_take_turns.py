"""Two processes that pull the same model do not write over each other."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
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


def test_a_folder_that_is_removed_while_one_waits_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "into"
    entered = threading.Event()

    def wait_for_it() -> None:
        with exclusive(folder):
            if folder.is_dir():
                entered.set()

    with exclusive(folder):
        waiter = threading.Thread(target=wait_for_it)
        waiter.start()
        probe = os.open(folder / ".lock", os.O_RDWR)
        patience = time.monotonic() + 5
        while _waiters(probe) == 0 and time.monotonic() < patience:
            time.sleep(0.01)
        shutil.rmtree(folder)
        os.close(probe)
    waiter.join(timeout=30)
    assert entered.is_set()


def _waiters(lock: int) -> int:
    """How many are blocked on the lock, as the kernel lists them."""
    inode = f":{os.fstat(lock).st_ino} "
    lines = Path("/proc/locks").read_text().splitlines()
    return sum("->" in line and inode in line for line in lines)
