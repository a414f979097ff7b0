"""Which files of a hub repository make up the checkpoint that was asked for. Pure: no network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgeseek.checkpoints.catalogue import HubSource
from edgeseek.checkpoints.folder import CONFIG, INDEX, SIDE_FILES, SINGLE
from edgeseek.errors import CheckpointFormatError, UnknownModelError, UnsupportedCheckpointError

_SPLIT = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
_LISTED = 12


@dataclass(frozen=True)
class HubFile:
    """A file of a repository; size and digests are None where the server does not tell them."""

    #: Path inside the repository.
    name: str
    size: int | None = None
    sha256: str | None = None
    #: Git's object id: sha1 of b"blob SIZE\0" and the contents. Only for files outside LFS.
    git_oid: str | None = None

    @property
    def local_name(self) -> str:
        """Its file name in the download folder."""
        return PurePosixPath(self.name).name


@dataclass(frozen=True)
class Selection:
    """`files` to fetch first; with `sharded`, the shards that the index among them names come after."""

    files: tuple[HubFile, ...]
    sharded: bool = False
    #: The GGUF to open, or None where the folder is the checkpoint.
    gguf: HubFile | None = None


def select(source: HubSource, files: Sequence[HubFile]) -> Selection:
    """What to fetch of `files`, the whole listing of the repository.

    Raises UnknownModelError where the choice of a GGUF is open or names none, UnsupportedCheckpointError
    for split GGUFs and pickles, CheckpointFormatError where no model is there.
    """
    ggufs = [file for file in files if file.name.lower().endswith(".gguf")]
    if source.file is not None:
        return _only(source, _named_gguf(source, source.file, ggufs))
    top = {file.name: file for file in files if "/" not in file.name}
    weights = sorted(name for name in top if name.endswith(".safetensors"))
    if not weights:
        return _without_safetensors(source, files, ggufs)
    if CONFIG not in top:
        raise CheckpointFormatError(
            f"{source.repo} holds no {CONFIG}, so it is no model of the transformers layout; pull another "
            "repository"
        )
    side = [top[name] for name in SIDE_FILES if name in top and name != INDEX]
    if SINGLE in top:
        return Selection((*side, top[SINGLE]))
    if INDEX in top:
        return Selection((*side, top[INDEX]), sharded=True)
    if len(weights) > 1:
        raise CheckpointFormatError(
            f"{source.repo} holds {len(weights)} safetensors files and no {INDEX}; pull another repository"
        )
    return Selection((*side, top[weights[0]]))


def _without_safetensors(source: HubSource, files: Sequence[HubFile], ggufs: Sequence[HubFile]) -> Selection:
    if len(ggufs) == 1:
        return _only(source, ggufs[0])
    if ggufs:
        raise UnknownModelError(
            f"{source.repo} holds {len(ggufs)} GGUF files; name one, for example "
            f"{source.repo}:{ggufs[0].name} ({_listing(ggufs)})"
        )
    pickles = [file.name for file in files if file.name.endswith((".bin", ".pt", ".pth"))]
    if pickles:
        raise UnsupportedCheckpointError(
            f"{source.repo} holds its weights only as {pickles[0]}, a pickle, which runs code when read; "
            f"pull a revision with safetensors ({source.repo}@refs/pr/N, see its pull requests) or a GGUF of "
            "the model"
        )
    raise CheckpointFormatError(
        f"{source.repo} holds neither safetensors nor GGUF files; pull another repository"
    )


def _named_gguf(source: HubSource, wanted: str, ggufs: Sequence[HubFile]) -> HubFile:
    exact = [file for file in ggufs if wanted in (file.name, file.local_name)]
    if exact:
        return exact[0]
    word = re.compile(rf"(?<![a-z0-9]){re.escape(wanted.lower())}(?![a-z0-9_])")
    found = [file for file in ggufs if word.search(file.local_name.lower())]
    if len(found) == 1:
        return found[0]
    if not ggufs:
        raise UnknownModelError(f"{source.repo} holds no GGUF files; pull it without {':' + wanted!r}")
    how = f"{len(found)} GGUF files" if found else "no GGUF file"
    raise UnknownModelError(
        f"{source.repo} holds {how} called {wanted!r}; name one of {_listing(found or ggufs)}"
    )


def _only(source: HubSource, file: HubFile) -> Selection:
    parts = _SPLIT.search(file.name)
    if parts is not None and int(parts[1]) > 1:
        raise UnsupportedCheckpointError(
            f"{file.name} of {source.repo} is one of {int(parts[1])} parts; pull a GGUF in one file, or join "
            "the parts with llama-gguf-split --merge and give the path of the result"
        )
    return Selection((file,), gguf=file)


def _listing(files: Sequence[HubFile]) -> str:
    shown = [
        file.name if file.size is None else f"{file.name} {file.size / 1e6:.0f} MB"
        for file in files[:_LISTED]
    ]
    more = [f"and {len(files) - _LISTED} more"] if len(files) > _LISTED else []
    return ", ".join(shown + more)
