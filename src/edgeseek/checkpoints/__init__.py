"""Checkpoints as the world ships them: read from disk, named in a catalogue, fetched.

Knows nothing of architectures or of our own quantization schemes.
"""

from __future__ import annotations

from edgeseek.checkpoints.base import Checkpoint, CheckpointKind, LazyTensor, TextAssets
from edgeseek.checkpoints.opening import open_checkpoint

__all__ = ["Checkpoint", "CheckpointKind", "LazyTensor", "TextAssets", "open_checkpoint"]
