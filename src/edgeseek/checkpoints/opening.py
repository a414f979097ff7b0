"""Open whatever checkpoint is at a path."""

from __future__ import annotations

from pathlib import Path

from edgeseek.checkpoints.base import Checkpoint
from edgeseek.checkpoints.folder import CONFIG, FolderCheckpoint
from edgeseek.checkpoints.gguf import GgufCheckpoint
from edgeseek.errors import CheckpointFormatError, UnknownModelError


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a Hugging Face folder, a .gguf file, or a folder that holds one .gguf file.

    Tensors stay on disk until they are read. Close the result, or use it with `with`. Raises
    UnknownModelError if nothing is at `path`; CheckpointFormatError, UnsupportedCheckpointError or
    CheckpointError if what is there cannot be read.
    """
    try:
        is_folder = path.is_dir()
        exists = path.exists()
    except (OSError, ValueError) as error:
        raise UnknownModelError(f"{str(path)!r} is no usable path: {error}") from error
    if not exists:
        raise UnknownModelError(
            f"there is no file or folder {path}; give the path of a .gguf file or of a Hugging Face folder"
        )
    if not is_folder:
        if path.suffix == ".safetensors":
            raise CheckpointFormatError(
                f"{path} is one file of a Hugging Face model; give the path of its folder, {path.parent}"
            )
        return GgufCheckpoint(path)
    files = sorted(file for file in path.glob("*.gguf") if file.is_file())
    if (path / CONFIG).is_file() or not files:
        return FolderCheckpoint(path)
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise CheckpointFormatError(f"{path} holds {len(files)} GGUF files; give the path of one of {names}")
    return GgufCheckpoint(files[0])
