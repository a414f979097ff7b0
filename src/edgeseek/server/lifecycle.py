"""The process around the application: listen at once, load, serve, drain, end.

| event         | what happens                                                                         |
|---------------|--------------------------------------------------------------------------------------|
| start         | the socket listens before the model is loaded; systemd hears READY when it is         |
| SIGTERM, INT  | new requests get 503; running ones may end within `drain_seconds`; then all is closed |
| a second one  | running answers are cut off                                                          |
| load fails    | the server ends with that error                                                      |
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeseek.errors import EdgeseekError, MissingExtraError, StorageError, UsageError
from edgeseek.server.config import ServerConfig
from edgeseek.server.sd_notify import Notifier

if TYPE_CHECKING:
    from edgeseek.llm import LLM
    from edgeseek.server.model_host import Loader, ModelHost

LOG = logging.getLogger("edgeseek.server")
#: Seconds that a thread may keep the interpreter's lock while another waits. By default 5 ms, longer than a
#: small model's step: the engine would wait for the event loop that long between two steps.
SWITCH_INTERVAL_S = 0.0005
CONNECTIONS = 1024


def check_extra() -> None:
    """Raise MissingExtraError where what the server needs is not installed."""
    for package in ("fastapi", "uvicorn", "httptools"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "server", "edgeseek serve")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free. Raises UsageError naming what hinders."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host!r} is no address of this machine: {error}") from None
    found = socket.socket(family, kind)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(CONNECTIONS)
        found.set_inheritable(False)
    except OSError as error:
        found.close()
        raise UsageError(
            f"port {port} of {host} cannot be had: {error.strerror}; give another --port or --host"
        ) from None
    return found


def serve(
    config: ServerConfig,
    load: Loader,
    *,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> int:
    """Serve until a signal ends it; returns the exit code. `say` gets a line for what a person should know.

    Raises MissingExtraError, UsageError for an address that cannot be had, and what the first load raises.
    """
    check_extra()
    from edgeseek.server.model_host import ModelHost

    if config.name is None:
        raise UsageError("the served model has no name; give --name")
    listening = listen(config.host, config.port)
    host = ModelHost(load, name=config.name, max_queue=config.max_queue, idle_unload=config.idle_unload)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    running = _Process(config, host, Notifier(environ), say)
    with contextlib.closing(listening):
        return running.run(listening)


class _Process:
    """One run of the server."""

    def __init__(
        self, config: ServerConfig, host: ModelHost, notifier: Notifier, say: Callable[[str], None]
    ) -> None:
        from uvicorn import Config

        from edgeseek.server.app import create_app
        from edgeseek.server.protocol import BoundedProtocol

        self._config = config
        self._host = host
        self._notifier = notifier
        self._say = say
        self._signals: list[int] = []
        host.on_ready, host.on_failed = self._ready, self._failed
        self._server = _server(
            Config(
                create_app(config, host),
                http=BoundedProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=5,
            ),
            self._signalled,
        )

    def run(self, listening: socket.socket) -> int:
        """Serve on `listening`."""
        address = listening.getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        self._say(f"listening on http://{shown}:{address[1]}")
        self._notifier.status("loading")
        # uvicorn exits the process by itself where its start-up fails, which ours reports better.
        try:
            self._server.run(sockets=[listening])
        except SystemExit as end:
            raise StorageError("the server could not start; its log says why") from end
        if self._host.loads == 0 and self._host.error is not None:
            raise self._host.error
        return 128 + self._signals[0] if len(self._signals) > 1 else 0

    def _ready(self, llm: LLM) -> None:
        if self._host.loads > 1:
            LOG.info("loaded %s again", self._host.name)
            return
        self._say(f"serving {self._host.name}, context {llm.context} tokens")
        self._notifier.ready()
        self._notifier.status(f"serving {self._host.name}")
        if self._notifier.watchdog_s is not None:
            self._watching = asyncio.get_running_loop().create_task(self._feed(self._notifier.watchdog_s))

    def _failed(self, error: BaseException) -> None:
        if self._host.loads == 0:
            self._server.should_exit = True
        else:
            LOG.error("the model could not be loaded again: %s", error)

    def _signalled(self, number: int) -> None:
        """A signal; called on the main thread, between two bytecodes."""
        self._signals.append(number)
        if len(self._signals) == 1:
            self._loop.call_soon_threadsafe(self._begin_drain)
        else:
            self._server.force_exit = self._server.should_exit = True

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _begin_drain(self) -> None:
        self._notifier.stopping()
        active = self._host.active
        self._host.stop_admitting()
        waiting = f"; {active} requests may end within {self._config.drain_seconds:g} s" if active else ""
        self._say(f"stopping{waiting}")
        self._draining = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._host.quiet(), self._config.drain_seconds)
        if self._host.active:
            self._say(f"{self._host.active} requests are cut off")
            if self._host.llm is not None:
                # Ends what runs with an error, which its clients are sent.
                await asyncio.to_thread(self._host.llm.engine.close)
        self._server.should_exit = True

    async def _feed(self, period_s: float) -> None:
        """Tell the watchdog that the engine steps: word goes through its step loop, and comes back."""
        while True:
            if await engine_steps(self._host):
                self._notifier.alive()
            await asyncio.sleep(period_s / 3)


async def engine_steps(host: ModelHost) -> bool:
    """Whether the model's step loop takes word; true without a model. Waits while a step runs."""
    llm = host.llm
    if llm is None:
        return True
    try:
        await asyncio.to_thread(llm.engine.between_steps, lambda *_: None)
    except EdgeseekError:
        # Closed because it was released meanwhile is no fault; closed or dead while it serves is one.
        return host.llm is not llm
    return True


def _server(config: Any, signalled: Callable[[int], None]) -> Any:
    """uvicorn's server, which leaves signals to `signalled`."""
    from uvicorn import Server

    class SignalledServer(Server):
        def handle_exit(self, sig: int, _frame: Any) -> None:
            signalled(sig)

    return SignalledServer(config)


def configure_logging(stream: Any) -> None:
    """Send the log to `stream`, a line each."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (("edgeseek", logging.INFO), ("uvicorn.error", logging.WARNING)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)


def served_name(model: str) -> str:
    """What clients call the model given as `model`: a path's last part without suffix, else as it is."""
    path = Path(model).expanduser()
    return path.resolve().name.removesuffix(".gguf").removesuffix(".onnx") if path.exists() else model
