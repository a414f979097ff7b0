"""A GGUF file as a Checkpoint: metadata as raw config, the vocabulary's keys as text assets.

Owns which metadata keys go where. Knows nothing of architectures; Llama's Q and K rows are delivered as
they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edgeseek.checkpoints.base import CheckpointKind, TextAssets
from edgeseek.checkpoints.digest import checkpoint_digest
from edgeseek.checkpoints.gguf_header import read_header
from edgeseek.checkpoints.mapping import MappedFile, MappedTensor
from edgeseek.errors import UnsupportedCheckpointError

#: GGUF's sampling defaults and the Hugging Face names of the same.
SAMPLING_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "general.sampling.temp": "temperature",
        "general.sampling.top_k": "top_k",
        "general.sampling.top_p": "top_p",
        "general.sampling.min_p": "min_p",
        "general.sampling.penalty_repeat": "repetition_penalty",
    }
)


class GgufCheckpoint:
    """An opened .gguf file; see `checkpoints.base.Checkpoint` for the members.

    Raises CheckpointFormatError for a damaged file, UnsupportedCheckpointError for one of a kind we do
    not read (big-endian, version 1, split, an unknown tensor type).
    """

    kind: CheckpointKind = "gguf"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = MappedFile(path)
        try:
            header = read_header(self._file)
            parts = header.metadata.get("split.count", 1)
            if type(parts) is int and parts > 1:
                raise UnsupportedCheckpointError(
                    f"{path} is one of {parts} parts of a split GGUF; join them with "
                    f"llama-gguf-split --merge and give the path of the result"
                )
            self._file.release()
        except BaseException:
            self._file.close()
            raise
        self._metadata = header.metadata
        self.tensors: Mapping[str, MappedTensor] = header.tensors

    @cached_property
    def raw_config(self) -> Mapping[str, Any]:
        """All metadata except the arrays under `tokenizer.`."""
        return MappingProxyType(
            {
                key: value
                for key, value in self._metadata.items()
                if not (key.startswith("tokenizer.") and isinstance(value, list))
            }
        )

    @cached_property
    def text_assets(self) -> TextAssets:
        """The `tokenizer.*` keys, the default chat template and the sampling defaults."""
        vocabulary = {key: value for key, value in self._metadata.items() if key.startswith("tokenizer.")}
        template = vocabulary.get("tokenizer.chat_template")
        return TextAssets(
            chat_template=template if isinstance(template, str) and template else None,
            generation_config=MappingProxyType(_sampling_defaults(self._metadata)),
            gguf_metadata=MappingProxyType(vocabulary),
        )

    def digest(self) -> str:
        """sha256 hex over the file's name, size and contents."""
        return checkpoint_digest([self.path])

    def close(self) -> None:
        """Drop the mapping."""
        self._file.close()

    def __enter__(self) -> GgufCheckpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _sampling_defaults(metadata: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, name in SAMPLING_KEYS.items():
        value = metadata.get(key)
        if isinstance(value, float):
            # Stored as binary32: 0.6 comes back as 0.6000000238.
            found[name] = float(f"{value:.7g}")
        elif type(value) is int:
            found[name] = value
    if found.get("temperature", 0) > 0:
        found["do_sample"] = True
    return found
