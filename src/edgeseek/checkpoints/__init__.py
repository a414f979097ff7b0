"""Checkpoints as the world ships them: read from disk, named in a catalogue, fetched.

Knows nothing of architectures or of our own quantization schemes. What reads and fetches is imported on
first use, so that a model that is a package already starts without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeseek.checkpoints.base import Checkpoint, CheckpointKind, LazyTensor, TextAssets
from edgeseek.lazy import imported_later

if TYPE_CHECKING:
    from edgeseek.checkpoints.catalogue import CatalogueEntry
    from edgeseek.checkpoints.download import fetch
    from edgeseek.checkpoints.opening import open_checkpoint
    from edgeseek.checkpoints.transfer import Progress

__all__ = [
    "CatalogueEntry",
    "Checkpoint",
    "CheckpointKind",
    "LazyTensor",
    "Progress",
    "TextAssets",
    "fetch",
    "open_checkpoint",
]

__getattr__ = imported_later(
    __name__,
    {
        "CatalogueEntry": "catalogue",
        "Progress": "transfer",
        "fetch": "download",
        "open_checkpoint": "opening",
    },
)
