"""Tells systemd how the service is doing, sd_notify(3): a datagram to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import socket
from collections.abc import Mapping


class Notifier:
    """Sends states; does nothing where no service manager listens, and never fails for it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        # "@" stands for the zero byte of an abstract socket's name.
        self._address = "\0" + path[1:] if path.startswith("@") else path
        period = environ.get("WATCHDOG_USEC", "")
        #: Seconds within which the service manager wants to hear `alive`; None without a watchdog.
        self.watchdog_s = int(period) / 1e6 if self._address and period.isdigit() and int(period) else None

    def ready(self) -> None:
        """The service answers."""
        self._send("READY=1")

    def stopping(self) -> None:
        """The service ends."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """What `systemctl status` shows."""
        self._send("STATUS=" + text.replace("\n", " "))

    def _send(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError:  # a manager that went away or does not read is no reason to stop serving
            return
