"""Fetch a model from the Hugging Face hub or a mirror of it, with the package huggingface_hub.

That package (extra `hub`) brings the hub's HTTP: proxies, tokens, redirects, retries. Owned here are the
choice of files, partial files that a later run goes on with (its own are given up with the process), and
the check of every file against the digest in the repository's listing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgeseek.checkpoints.base import Checkpoint
from edgeseek.checkpoints.catalogue import HubSource
from edgeseek.checkpoints.folder import CONFIG, INDEX, FolderCheckpoint, shard_names
from edgeseek.checkpoints.hub_files import HubFile, Selection, select
from edgeseek.checkpoints.json_files import read_json_object
from edgeseek.checkpoints.partial import PartialFile, is_complete
from edgeseek.checkpoints.transfer import (
    DownloadSettings,
    Progress,
    finish,
    no_progress,
    require_space,
    storage_error,
)
from edgeseek.errors import (
    CheckpointFormatError,
    DownloadError,
    EdgeseekError,
    MissingExtraError,
    UnknownModelError,
)

_LIST_TIMEOUT_SECONDS = 30.0
#: Attempts in a row that may bring no byte before a file is given up.
_IDLE_ATTEMPTS = 2


def fetch_from_hub(
    source: HubSource,
    into: Path,
    *,
    settings: DownloadSettings,
    progress: Progress = no_progress,
    accept: Callable[[Checkpoint], None] | None = None,
) -> Path:
    """Download `source` into the folder `into`; returns the GGUF, or `into` for a Hugging Face folder.

    The caller holds the folder's lock. What an earlier run left is gone on with, files that are complete
    are kept. `accept` is given the folder when config.json is there and the weights are not. Raises
    MissingExtraError, UnknownModelError (no such repository, revision or file),
    UnsupportedCheckpointError, CheckpointFormatError, DownloadError or StorageError.
    """
    return _Pull(source, into, settings, progress).run(accept)


class _Pull:
    """One download: the client, the pinned revision, and the bytes so far."""

    def __init__(self, source: HubSource, into: Path, settings: DownloadSettings, progress: Progress) -> None:
        self.source = source
        self.into = into
        self.settings = settings
        self._shown = progress
        self.progress: Progress = no_progress
        self.commit = source.revision
        self.done = 0
        self.total: int | None = None
        try:
            self.hub = importlib.import_module("huggingface_hub")
            self.http_get = importlib.import_module("huggingface_hub.file_download").http_get
            self.hub_utils = importlib.import_module("huggingface_hub.utils")
            self.hub_errors = importlib.import_module("huggingface_hub.errors")
        except ImportError as error:
            raise MissingExtraError("huggingface_hub", "hub", f"pulling {source.repo}") from error

    def run(self, accept: Callable[[Checkpoint], None] | None) -> Path:
        listing = self._list()
        selection = select(self.source, list(listing.values()))
        files = list(selection.files)
        if selection.gguf is None and accept is not None:
            self._fetch_all([listing[CONFIG]])
            accept(FolderCheckpoint(self.into, weights=False))
        if selection.sharded:
            # The shards, and so the total, are known only when the index is.
            self._fetch_all(files)
            files += self._shards(listing)
        self.done = 0
        self.total = _total(files)
        if self.total is not None:
            present = sum(self._present(file) for file in files)
            require_space(self.into, self.total - present, f"pulling {self.source.repo}")
        self.progress = self._shown
        self._fetch_all(files)
        return self._checkpoint(selection)

    def _checkpoint(self, selection: Selection) -> Path:
        return self.into if selection.gguf is None else self.into / selection.gguf.local_name

    def _list(self) -> dict[str, HubFile]:
        """Every file of the revision, by name; pins the revision to its commit."""
        api = self.hub.HfApi(endpoint=self.settings.hf_endpoint, token=self.settings.hf_token)
        with self._translated("the list of files"):
            try:
                info = api.model_info(
                    self.source.repo,
                    revision=self.source.revision,
                    files_metadata=True,
                    timeout=_LIST_TIMEOUT_SECONDS,
                )
            except (AttributeError, KeyError, TypeError) as error:
                raise DownloadError(
                    f"{self.settings.hf_endpoint} has no list of files for {self.source.repo} in its answer; "
                    "check HF_ENDPOINT"
                ) from error
        self.commit = info.sha or self.commit
        return {item.rfilename: _hub_file(item) for item in info.siblings or ()}

    def _shards(self, listing: dict[str, HubFile]) -> list[HubFile]:
        index = self.into / INDEX
        names = sorted(set(shard_names(read_json_object(index), str(index)).values()))
        for name in names:
            if name not in listing:
                raise CheckpointFormatError(
                    f"{self.source.repo} lacks the shard {name}, which its {INDEX} names; pull another "
                    "revision"
                )
        return [listing[name] for name in names]

    def _fetch_all(self, files: list[HubFile]) -> None:
        for file in files:
            before = self.done
            try:
                self._fetch(file)
            except OSError as error:
                raise storage_error(self.into / file.local_name, error) from error
            if file.size is not None:
                self._report(before + file.size - self.done)

    def _report(self, more: int) -> None:
        self.done += more
        self.progress(self.done, self.total)

    def _fetch(self, file: HubFile) -> None:
        target = self.into / file.local_name
        if target.is_file() and is_complete(target, file):
            return
        path = self._partial_path(file)
        with PartialFile(path, file, self._report) as partial:
            self._report(partial.size)
            self._receive(file, partial)
            if not partial.is_verified():
                partial.discard()
                raise DownloadError(
                    f"{file.name} of {self.source.repo} arrived with {partial.size} bytes and another digest "
                    "than the repository lists; run the same command again, it starts that file anew"
                )
        finish(path, target)

    def _partial_path(self, file: HubFile) -> Path:
        """Named after the contents, so that bytes of an older version are not gone on with."""
        identity = file.sha256 or file.git_oid or self.commit
        return self.into / f".{file.local_name}.{identity[:16].replace('/', '-')}.partial"

    def _present(self, file: HubFile) -> int:
        """Bytes of `file` that are on the disk already."""
        paths = (self.into / file.local_name, self._partial_path(file))
        return max((path.stat().st_size for path in paths if path.is_file()), default=0)

    def _receive(self, file: HubFile, partial: PartialFile) -> None:
        """Append what is missing; a broken connection is taken up again as long as bytes arrive."""
        url = self.hub.hf_hub_url(
            self.source.repo, file.name, revision=self.commit, endpoint=self.settings.hf_endpoint
        )
        headers = self.hub_utils.build_hf_headers(token=self.settings.hf_token)
        idle = 0
        while file.size is None or partial.size < file.size:
            before = partial.size
            failure: DownloadError | None = None
            try:
                with self._translated(file.name), _quiet(self.hub_utils):
                    self.http_get(
                        url, partial, resume_size=partial.size, headers=headers, expected_size=file.size
                    )
            except _Interrupted as error:
                failure = error
            if failure is None and file.size is None:
                return
            if file.size is not None and partial.size > file.size:
                # Older clients append the whole file where a server ignores the range they asked for.
                partial.clear()
            idle = 0 if partial.size > before else idle + 1
            if idle >= _IDLE_ATTEMPTS:
                raise failure or DownloadError(
                    f"{self.settings.hf_endpoint} delivers {file.name} of {self.source.repo} with other "
                    f"than the {file.size} bytes it lists; run the same command again"
                )

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """The hub's errors as ours: the one place where they are looked at."""
        errors = self.hub_errors
        repo, endpoint = self.source.repo, self.settings.hf_endpoint
        try:
            yield
        except EdgeseekError:
            raise
        except errors.GatedRepoError as error:
            raise DownloadError(
                f"{repo} is gated: accept its terms at {endpoint}/{repo}, then set HF_TOKEN to a token of "
                "that account"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise UnknownModelError(
                f"{endpoint} has no model {repo!r}, or it is private; check the name, or set HF_TOKEN"
            ) from error
        except errors.RevisionNotFoundError as error:
            raise UnknownModelError(
                f"{repo} has no revision {self.source.revision!r}; check the name"
            ) from error
        except errors.EntryNotFoundError as error:
            raise DownloadError(
                f"{endpoint} lists {what} of {repo} and does not deliver it; try again"
            ) from error
        except errors.HfHubHTTPError as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status in (401, 403):
                raise DownloadError(
                    f"{endpoint} refused {what} of {repo} (status {status}); check that HF_TOKEN is valid "
                    "and may read it"
                ) from error
            raise _Interrupted(repo, endpoint, what, _one_line(error)) from error
        # Whichever HTTP client the package uses, its errors derive from a base of the package's own.
        except (*errors.HfHubHTTPError.__bases__, OSError, ValueError) as error:
            raise _Interrupted(repo, endpoint, what, _one_line(error)) from error


class _Interrupted(DownloadError):
    """The connection or the server failed; another attempt may succeed."""

    def __init__(self, repo: str, endpoint: str, what: str, reason: str) -> None:
        super().__init__(
            f"cannot download {what} of {repo} from {endpoint}: {reason}; check the network and run the same "
            f"command again, it goes on where it stopped"
        )


def _hub_file(item: Any) -> HubFile:
    lfs = item.lfs
    size = lfs.size if lfs is not None else item.size
    # A 64-digit id would be git's sha256 format, which is not the file's own sha256.
    oid = item.blob_id if lfs is None and size is not None and len(item.blob_id or "") == 40 else None
    return HubFile(item.rfilename, size, lfs.sha256 if lfs is not None else None, oid)


def _total(files: list[HubFile]) -> int | None:
    sizes = [file.size for file in files]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextmanager
def _quiet(hub_utils: Any) -> Iterator[None]:
    """Keep the package from drawing its own progress bars."""
    if hub_utils.are_progress_bars_disabled():
        yield
        return
    hub_utils.disable_progress_bars()
    try:
        yield
    finally:
        hub_utils.enable_progress_bars()
