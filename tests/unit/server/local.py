"""A real server on loopback: in a thread of this process, or as the command in one of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from edgeseek.server.app import create_app
from edgeseek.server.config import ServerConfig
from edgeseek.server.model_host import ModelHost
from edgeseek.server.protocol import BoundedProtocol
from edgeseek.settings import Settings
from tests.unit.server.served import NAME

DEADLINE_S = 30.0


def wait_until(condition: Callable[[], Any]) -> None:
    """Return when `condition` holds; a test that waits in vain fails."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@dataclass
class InThread:
    """A server of this process."""

    port: int
    host: ModelHost

    def connect(self) -> socket.socket:
        """A raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def in_thread(
    load: Any, protocol: type[BoundedProtocol] = BoundedProtocol, **options: Any
) -> Iterator[InThread]:
    """Serve on a free port of loopback until the block ends."""
    config = ServerConfig(model=NAME, name=NAME, **options)
    host = ModelHost(load, name=NAME, max_queue=config.max_queue, idle_unload=config.idle_unload)
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(config, host),
            http=protocol,
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_until(lambda: host.state != "loading" and server.started)
            yield InThread(listening.getsockname()[1], host)
        finally:
            server.should_exit = True
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


class Command:
    """`edgeseek serve` as a process."""

    def __init__(self, model: Path, settings: Settings, words: Sequence[str], **environ: str) -> None:
        environment = {
            **os.environ,
            "EDGESEEK_HOME": str(settings.cache_dir),
            "EDGESEEK_THREADS": "1",
            **environ,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edgeseek", "serve", str(model), "--port", "0", "--name", NAME, *words],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    def line(self, beginning: str) -> str:
        """Wait for a line that begins so."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [line for line in self.lines if line.startswith(beginning)]
            return bool(found) or (self.process.poll() is not None and not self._reader.is_alive())

        wait_until(look)
        assert found, self.lines
        return found[0]

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.line("listening on ").split()[-1]

    def ready(self) -> None:
        """Wait until requests are answered."""
        self.line("serving ")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code."""
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return code


@contextlib.contextmanager
def command(package: tuple[Path, Settings], *words: str, **environ: str) -> Iterator[Command]:
    """The command on this package; ended with the block."""
    started = Command(package[0], package[1], words, **environ)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.wait()
        assert started.process.stderr is not None
        started.process.stderr.close()


def post(url: str, body: dict[str, Any]) -> httpx.Response:
    """POST to the text completions of the server at `url`."""
    return httpx.post(f"{url}/v1/completions", json={"model": NAME, **body}, timeout=DEADLINE_S)
