"""What every measured engine is asked to do, and how a process looks at itself.

All engines get the same token ids, new-token counts and thread count. Standard library only, so that a
worker's memory and start-up are its engine's own.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

#: Ids are drawn below this, inside every vocabulary and past its special first ids.
_LOWEST_ID, _HIGHEST_ID = 300, 30000
STREAM_PROMPT_TOKENS = 32


@dataclass(frozen=True)
class Work:
    """One process's job."""

    model: str
    threads: int
    prompt_tokens: int = 512
    new_tokens: int = 64
    streams: int = 8
    #: llama.cpp's flash attention; ours has one attention.
    flash: bool = False

    @property
    def context(self) -> int:
        """Positions that one stream of the longest measurement needs."""
        return self.prompt_tokens + self.new_tokens + 8

    def prompt(self, stream: int = 0) -> list[int]:
        """The ids of the single prompt (stream 0), or a shorter one of its own for each stream."""
        length = STREAM_PROMPT_TOKENS if stream else self.prompt_tokens
        source = random.Random(stream)
        return [source.randrange(_LOWEST_ID, _HIGHEST_ID) for _ in range(length)]

    def arguments(self) -> list[str]:
        """The command line that `parse` reads back."""
        return [json.dumps(asdict(self))]


@dataclass(frozen=True)
class Result:
    """What a worker measured; tokens per second and bytes."""

    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    #: None where the engine does not batch.
    streams_tokens_per_s: float | None
    #: VmHWM after load, prefill and decode of one stream, and what it is made of at that moment.
    peak_rss_bytes: int
    anonymous_bytes: int
    file_bytes: int
    #: KV of the measured context, and weights that a decoded token reads, where the engine tells.
    kv_bytes: int = 0
    token_bytes: int = 0


def parse(description: str | None) -> Work:
    """The job on this process's command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("work", type=json.loads)
    return Work(**parser.parse_args().work)


def report(result: Result) -> None:
    """Hand the result to the parent, as the last line of stdout."""
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


def memory() -> tuple[int, int, int]:
    """(VmHWM, RssAnon, RssFile) of this process in bytes."""
    fields: dict[str, int] = {}
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            fields[name] = int(value.split()[0]) * 1024
    return fields["VmHWM"], fields["RssAnon"], fields["RssFile"]
