"""One line of an examination, and the wording that the checks share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

#: ok: nothing to do. note: works, and could be better. problem: keeps models from running as they should.
Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """What was found about `subject`, what it means here, and what would mend it."""

    subject: str
    found: str
    meaning: str
    status: Status = "ok"
    #: A command or a setting; None where nothing is to be done.
    remedy: str | None = None


def amount(size: int) -> str:
    """Bytes in binary units, as memory and its limits are set: 7.8 GiB, 8 MiB, 64 KiB."""
    units = ("bytes", "KiB", "MiB", "GiB")
    power = min((max(size, 1).bit_length() - 1) // 10, len(units) - 1)
    return f"{size / 1024**power:.1f}".removesuffix(".0") + f" {units[power]}"


def cpu_list(cpus: Iterable[int]) -> str:
    """CPU numbers as the kernel lists them: `0-3,8`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)
