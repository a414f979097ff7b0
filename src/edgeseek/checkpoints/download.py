"""Fetch a catalogue entry, wherever it comes from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgeseek.checkpoints.base import Checkpoint
from edgeseek.checkpoints.catalogue import CatalogueEntry, IndexSource
from edgeseek.checkpoints.hub import fetch_from_hub
from edgeseek.checkpoints.index import fetch_from_index
from edgeseek.checkpoints.transfer import DownloadSettings, Progress, exclusive, no_progress


def fetch(
    entry: CatalogueEntry,
    into: Path,
    *,
    settings: DownloadSettings,
    progress: Progress | None = None,
    accept: Callable[[Checkpoint], None] | None = None,
) -> Path:
    """Download `entry` into the folder `into`, which is made, and return the path to open.

    `into` belongs to this entry alone (use `entry.slug`): broken attempts leave hidden files there that the
    next one goes on with or removes. `progress(done, total)` counts bytes. A second process that fetches
    into the same folder waits. Every file is verified by digest before it gets its name. `accept` is given
    a Hugging Face folder before its weights are fetched, and may raise. Raises DownloadError, StorageError,
    MissingExtraError, UnknownModelError, UnsupportedCheckpointError, CheckpointFormatError.
    """
    report = progress or no_progress
    with exclusive(into):
        if isinstance(entry.source, IndexSource):
            return fetch_from_index(entry.source, into, progress=report)
        return fetch_from_hub(entry.source, into, settings=settings, progress=report, accept=accept)
