"""Fetches and converts what is not a package yet. Imported only when there is something to import."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from edgeseek.architectures import parse_config
from edgeseek.checkpoints import Checkpoint, fetch, open_checkpoint
from edgeseek.package import convert
from edgeseek.package.files import Files
from edgeseek.quantize.schemes import Scheme
from edgeseek.settings import Settings
from edgeseek.store.folders import replacement, settle
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
) -> str:
    """Make the package `target` of `source`, in place of what is there; returns the summary.

    The caller holds the source's lock. Raises what fetching, reading and converting raise.
    """
    if isinstance(source.origin, Path):
        return _convert(source, source.origin, target, scheme, settings, files, report)
    downloads = settings.downloads_dir / source.origin.slug

    def downloaded(done: int, total: int | None) -> None:
        report(f"downloading {source.name}", done, total)

    checkpoint = fetch(
        source.origin, downloads, settings=settings, progress=downloaded, accept=_refuse_what_cannot_run
    )
    if keep_source:
        (downloads / _KEPT).touch()
    summary = _convert(source, checkpoint, target, scheme, settings, files, report)
    if not (downloads / _KEPT).exists():
        shutil.rmtree(downloads, ignore_errors=True)
    return summary


def _refuse_what_cannot_run(checkpoint: Checkpoint) -> None:
    """Raise for an architecture or a key of the config that we do not know."""
    parse_config(checkpoint)


def _convert(
    source: Source,
    checkpoint_path: Path,
    target: Path,
    scheme: Scheme | None,
    settings: Settings,
    files: Files,
    report: Callable[[str, int, int | None], None],
) -> str:
    def converted(done: int, total: int) -> None:
        report(f"converting {source.name}", done, total)

    replaces = files.exists(target)
    with open_checkpoint(checkpoint_path) as checkpoint:
        # Before the vocabulary, whose errors would hide that the model itself is unknown.
        _refuse_what_cannot_run(checkpoint)
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
