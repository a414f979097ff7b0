"""What `edgeseek serve` can be told, as one frozen value, and the file that may tell it."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgeseek.errors import UsageError
from edgeseek.memory.cgroup_placement import MemoryBounds
from edgeseek.toml import load_toml

DEFAULT_PORT = 8080


@dataclass(frozen=True)
class ServerConfig:
    """Options of the server. `load` holds those that `LLM.load` takes; durations are in seconds."""

    model: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    #: What clients call the model; None for the name it loads under.
    name: str | None = None
    #: Keys that clients may use; empty lets everybody in.
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    #: Origins whose pages may call the server from a browser; "*" for all.
    cors: tuple[str, ...] = ()
    #: Requests that may wait for a slot, beyond those that run.
    max_queue: int = 64
    #: Release the model after so long without a request; None keeps it.
    idle_unload: float | None = None
    #: How long a stopping server lets running answers go on.
    drain_seconds: float = 30.0
    #: Listen on other addresses than loopback without a key.
    insecure: bool = False
    #: Largest request body, in bytes.
    max_body: int = 4 << 20
    #: Limits of a cgroup of its own.
    memory: MemoryBounds = field(default_factory=MemoryBounds)
    load: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _within("--port", self.port, 0, 65535)
        _within("--max-queue", self.max_queue, 0, 100_000)
        _within("--drain-seconds", self.drain_seconds, 0, 86_400)
        _within("--max-body", self.max_body, 1024, 1 << 30)
        if self.idle_unload is not None:
            _within("--idle-unload", self.idle_unload, 0.1, 31_536_000)
        for origin in self.cors:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise UsageError(f"--cors is {origin!r}; give an origin such as https://example.org, or *")
        if not self.api_keys and not self.insecure and not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host} lets others on the network in and there is no API key; give "
                "--api-key-file FILE or EDGESEEK_API_KEY, or --insecure to serve everybody"
            )

    def with_changes(self, **changes: Any) -> ServerConfig:
        """A copy with some fields replaced; an unknown field raises TypeError."""
        return replace(self, **changes)


def is_loopback(host: str) -> bool:
    """Whether every address of `host` is this machine's own. Raises UsageError for an unknown name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host!r} is no address of this machine: {error}") from None
    return all(ipaddress.ip_address(str(entry[4][0]).split("%")[0]).is_loopback for entry in found)


def read_config_file(path: Path, known: dict[str, type]) -> dict[str, Any]:
    """The options in a TOML file, by the names of the command line without dashes (`api-key-file`).

    `known` gives each option's type. Raises UsageError naming an unknown key or a value of another type.
    """
    found: dict[str, Any] = {}
    for key, value in load_toml(path).items():
        if key not in known:
            raise UsageError(f"{path} has the unknown key {key!r}; known are {', '.join(sorted(known))}")
        wanted = known[key]
        if wanted is float and type(value) is int:
            value = float(value)
        strings = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not (strings if wanted is list else type(value) is wanted):
            kind = {list: "a list of strings", str: "a string", int: "a whole number", float: "a number"}
            raise UsageError(f"{key} in {path} is {value!r}; give {kind.get(wanted, 'true or false')}")
        found[key] = value
    return found


def _within(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UsageError(f"{option} is {value}; give a number from {low:g} to {high:g}")
