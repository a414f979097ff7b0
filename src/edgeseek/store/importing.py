"""Fetches and converts what is not a package yet. Imported only when there is something to import."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from edgeseek.checkpoints import Checkpoint, fetch, open_checkpoint
from edgeseek.checkpoints.catalogue import CatalogueEntry, IndexSource
from edgeseek.errors import UsageError
from edgeseek.memory.footprint import (
    Footprint,
    footprint_of,
    footprint_of_checkpoint,
    footprint_of_config,
)
from edgeseek.package import convert
from edgeseek.package.conversion import conversion_threads
from edgeseek.package.files import Files
from edgeseek.package.folders import replacement, settle
from edgeseek.quantize.schemes import Scheme
from edgeseek.settings import Settings
from edgeseek.store.sources import Source
from edgeseek.tokenizer import build_tokenizer_json, chat_template_of, generation_defaults

#: In a download that `keep_source` asked for, which a later import of another scheme must leave.
_KEPT = ".kept"


def import_source(
    source: Source,
    target: Path,
    scheme: Scheme | None,
    *,
    keep_source: bool,
    settings: Settings,
    files: Files,
    report: Callable[[str, int, int | None], None],
    accept: Callable[[Footprint], None] | None = None,
) -> str:
    """Make the package `target` of `source`, in place of what is there; returns the summary.

    The caller holds the source's lock. `accept` is told what it will take and may raise. Raises what
    fetching, reading and converting raise.
    """
    accept = accept or _accept_anything
    if isinstance(source.origin, Path):
        return _convert(source, source.origin, target, scheme, settings, files, report, accept)
    downloads = settings.downloads_dir / source.origin.slug

    def downloaded(done: int, total: int | None) -> None:
        report(f"downloading {source.name}", done, total)

    def look(config: Checkpoint) -> None:
        accept(footprint_of_config(config, scheme=scheme))

    checkpoint = fetch(source.origin, downloads, settings=settings, progress=downloaded, accept=look)
    if keep_source:
        (downloads / _KEPT).touch()
    summary = _convert(source, checkpoint, target, scheme, settings, files, report, accept)
    if not (downloads / _KEPT).exists():
        shutil.rmtree(downloads, ignore_errors=True)
    return summary


@contextmanager
def fetched(
    source: Source, entry: CatalogueEntry, settings: Settings, report: Callable[[str, int, int | None], None]
) -> Iterator[Path]:
    """The downloaded checkpoint of `entry`, deleted after the block unless `keep_source` once asked for it.

    The caller holds the source's lock. What a failed block leaves is continued by the next download.
    """
    downloads = settings.downloads_dir / entry.slug
    yield fetch(
        entry,
        downloads,
        settings=settings,
        progress=lambda done, total: report(f"downloading {source.name}", done, total),
    )
    if not (downloads / _KEPT).exists():
        shutil.rmtree(downloads, ignore_errors=True)


def described(
    source: Source,
    scheme: Scheme | None,
    settings: Settings,
) -> Footprint:
    """What importing `source` gives, of which only the config is fetched.

    Raises UsageError for one GGUF file, whose sizes are inside, and what fetching raises.
    """
    origin = source.origin
    if isinstance(origin, Path):
        return footprint_of(origin, scheme=scheme, threads=conversion_threads(settings))
    found: list[Footprint] = []

    def look(config: Checkpoint) -> None:
        found.append(footprint_of_config(config, scheme=scheme))
        raise _SeenError

    pull = f"get it with: edgeseek pull {source.name}"
    if isinstance(origin.source, IndexSource) or origin.source.file is not None:
        raise UsageError(f"{source.name} is one GGUF file, whose sizes are inside; {pull}")
    with suppress(_SeenError):
        fetch(origin, settings.downloads_dir / origin.slug, settings=settings, accept=look)
    if not found:
        raise UsageError(f"{source.name} has no config.json; {pull}")
    return replace(found[0], name=source.name)


class _SeenError(Exception):
    """Ends a fetch once its config was seen."""


def _accept_anything(footprint: Footprint) -> None:
    """An import that nobody asks about."""


def _convert(
    source: Source,
    checkpoint_path: Path,
    target: Path,
    scheme: Scheme | None,
    settings: Settings,
    files: Files,
    report: Callable[[str, int, int | None], None],
    accept: Callable[[Footprint], None],
) -> str:
    def converted(done: int, total: int) -> None:
        report(f"converting {source.name}", done, total)

    replaces = files.exists(target)
    with open_checkpoint(checkpoint_path) as checkpoint:
        # Before the vocabulary, whose errors would hide that the model itself is unknown.
        accept(footprint_of_checkpoint(checkpoint, scheme=scheme, threads=conversion_threads(settings)))
        assets = checkpoint.text_assets
        outcome = convert(
            checkpoint,
            replacement(target) if replaces else target,
            name=source.name,
            tokenizer_json=build_tokenizer_json(assets),
            chat_template=chat_template_of(assets),
            generation_config=generation_defaults(assets),
            scheme=scheme,
            progress=converted,
            settings=settings,
            files=files,
        )
    if replaces:
        settle(target, files)
    return outcome.summary
