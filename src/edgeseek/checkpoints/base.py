"""The one view of a checkpoint that the rest of the program sees.

Owns no format: `safetensors.py`, `gguf.py` and `folder.py` implement it. Knows nothing of
architectures or quantization schemes beyond a tensor's stored type name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

CheckpointKind = Literal["huggingface", "gguf"]


@dataclass(frozen=True)
class TextAssets:
    """What the tokenizer room needs, as stored; absent parts are None or empty.

    `gguf_metadata` holds the `tokenizer.*` keys of a GGUF; `tokenizer_json` the file of a folder.
    """

    tokenizer_json: bytes | None = None
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    gguf_metadata: Mapping[str, Any] = field(default_factory=dict)


class LazyTensor(Protocol):
    """A named tensor that is read in tiles of rows from a mapping, never whole."""

    @property
    def name(self) -> str:
        """The name it is stored under."""
        ...

    @property
    def dtype(self) -> str:
        """Stored type: F32, F16, BF16, F8_E4M3, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape, slowest axis first: (rows, columns) or (n,)."""
        ...

    def read_rows(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Stored bytes of rows [start, stop) as [rows, bytes per row]; a vector is one row.

        F8_E4M3 comes with its blocks' scales applied, as the bytes of float32.
        """
        ...


class Checkpoint(Protocol):
    """An opened checkpoint. Close it (or use `with`) to drop its mappings."""

    @property
    def kind(self) -> CheckpointKind:
        """What it was opened from."""
        ...

    @property
    def path(self) -> Path:
        """The folder or file."""
        ...

    @property
    def raw_config(self) -> Mapping[str, Any]:
        """config.json of a folder; all metadata of a GGUF except the `tokenizer.*` arrays."""
        ...

    @property
    def tensors(self) -> Mapping[str, LazyTensor]:
        """All tensors by the names they are stored under."""
        ...

    @property
    def text_assets(self) -> TextAssets:
        """What the tokenizer is built from."""
        ...

    def digest(self) -> str:
        """sha256 hex over the file names, sizes and contents that make up the checkpoint."""
        ...

    def close(self) -> None:
        """Drop the mappings; arrays that were handed out stay valid."""
        ...

    def __enter__(self) -> Checkpoint: ...

    def __exit__(self, *exc: object) -> None: ...
