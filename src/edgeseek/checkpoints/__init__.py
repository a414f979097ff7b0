"""Checkpoints as the world ships them: read from disk, named in a catalogue, fetched.

Knows nothing of architectures or of our own quantization schemes.
"""

from __future__ import annotations

from edgeseek.checkpoints.base import Checkpoint, CheckpointKind, LazyTensor, TextAssets
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
