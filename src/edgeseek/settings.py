"""Every environment variable and file root that edgeseek reads, in one frozen value.

| variable         | meaning                                                 | default                  |
|------------------|---------------------------------------------------------|--------------------------|
| EDGESEEK_HOME    | folder of pulled packages and downloads                 | $XDG_CACHE_HOME/edgeseek |
| XDG_CACHE_HOME   | parent of the default above                             | ~/.cache                 |
| EDGESEEK_ISA     | force an instruction set: scalar, avx2, avxvnni,        | best the CPU has         |
|                  | avx512, neon, neondot                                   |                          |
| EDGESEEK_THREADS | compute threads, 1 to 1024                              | what the limits allow    |
| EDGESEEK_API_KEY | keys that `serve` admits, split at commas               | none                     |
| HF_ENDPOINT      | base URL of the Hugging Face hub or a mirror of it      | https://huggingface.co   |
| HF_TOKEN         | access token for gated or private repositories          | none                     |

An empty variable counts as unset. `NO_COLOR` and the terminal's own variables are left to rich, proxies
to the HTTP and package clients. `proc_root` and `sys_root` have no variable: they exist so that whatever
reads `/proc` or `/sys` can be pointed at another tree.

Owns parsing and defaults. Reads the environment only when `from_environment` is called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edgeseek.errors import UsageError

#: Names that EDGESEEK_ISA accepts, from the slowest to the widest of each processor family.
ISA_NAMES = ("scalar", "avx2", "avxvnni", "avx512", "neon", "neondot")
MAX_THREADS = 1024
DEFAULT_HF_ENDPOINT = "https://huggingface.co"


@dataclass(frozen=True)
class Settings:
    """Where things are and what the user forces. Build it with `from_environment`."""

    #: Everything edgeseek stores: packages and downloads in progress.
    cache_dir: Path
    #: Forced instruction set, one of ISA_NAMES, or None for the best the CPU has.
    isa: str | None = None
    #: Forced number of compute threads, or None for what the limits allow.
    threads: int | None = None
    #: Base URL of the Hugging Face hub, without a trailing slash.
    hf_endpoint: str = DEFAULT_HF_ENDPOINT
    #: Access token for the hub; never shown in a repr.
    hf_token: str | None = field(default=None, repr=False)
    #: Keys that the server admits; never shown in a repr.
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    proc_root: Path = Path("/proc")
    sys_root: Path = Path("/sys")

    @property
    def packages_dir(self) -> Path:
        """Folder that holds one package folder per pulled model."""
        return self.cache_dir / "packages"

    @property
    def downloads_dir(self) -> Path:
        """Folder of downloaded checkpoints; emptied after conversion unless the source is kept."""
        return self.cache_dir / "downloads"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the variables above from `environ` (default: this process's environment).

        Raises UsageError naming the variable, what it holds and what it may hold.
        """
        env = os.environ if environ is None else environ
        return cls(
            cache_dir=_cache_dir(env),
            isa=_isa(env),
            threads=_threads(env),
            hf_endpoint=_endpoint(env),
            hf_token=_value(env, "HF_TOKEN"),
            api_keys=tuple(filter(None, map(str.strip, (_value(env, "EDGESEEK_API_KEY") or "").split(",")))),
        )

    def with_changes(self, **changes: Any) -> Settings:
        """A copy with some fields replaced; an unknown field raises TypeError."""
        return replace(self, **changes)


def _value(env: Mapping[str, str], name: str) -> str | None:
    text = env.get(name, "").strip()
    return text or None


def _cache_dir(env: Mapping[str, str]) -> Path:
    home = _value(env, "EDGESEEK_HOME")
    if home is not None:
        return _folder("EDGESEEK_HOME", home, env)
    cache = _value(env, "XDG_CACHE_HOME")
    # The XDG base directory specification says that a relative path there is to be ignored.
    if cache is not None and Path(cache).is_absolute():
        return Path(cache) / "edgeseek"
    return _user_home(env) / ".cache" / "edgeseek"


def _user_home(env: Mapping[str, str]) -> Path:
    home = _value(env, "HOME")
    return Path(home) if home is not None else Path.home()


def _folder(name: str, text: str, env: Mapping[str, str]) -> Path:
    if text == "~" or text.startswith("~/"):
        path = _user_home(env) / text[2:]
    else:
        path = Path(text)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{name} is {text!r}, which is a file; set it to a folder or unset it")
    return path.absolute()


def _isa(env: Mapping[str, str]) -> str | None:
    text = _value(env, "EDGESEEK_ISA")
    if text is None:
        return None
    if text.lower() not in ISA_NAMES:
        raise UsageError(f"EDGESEEK_ISA is {text!r}; set it to one of {', '.join(ISA_NAMES)}, or unset it")
    return text.lower()


def _threads(env: Mapping[str, str]) -> int | None:
    text = _value(env, "EDGESEEK_THREADS")
    if text is None:
        return None
    if not (re.fullmatch(r"[0-9]{1,6}", text) and 1 <= int(text) <= MAX_THREADS):
        raise UsageError(
            f"EDGESEEK_THREADS is {text!r}; set it to a whole number from 1 to {MAX_THREADS}, or unset it"
        )
    return int(text)


def _endpoint(env: Mapping[str, str]) -> str:
    text = _value(env, "HF_ENDPOINT")
    if text is None:
        return DEFAULT_HF_ENDPOINT
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(
            f"HF_ENDPOINT is {text!r}; set it to a URL that begins with http:// or https://, or unset it"
        )
    return text.rstrip("/")
