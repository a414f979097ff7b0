"""What becomes of a checkpoint's tensors that no rule names: harmless ones are listed, all others refused."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edgeseek.architectures.rope_gguf import ROPE_TENSORS
from edgeseek.architectures.spec import ModelConfig, TensorRule
from edgeseek.checkpoints.base import Checkpoint, LazyTensor
from edgeseek.errors import UnsupportedCheckpointError

#: Tensors that hold nothing the rules need: inverse frequencies, which follow from the config.
_DERIVED_ENDS = (".rotary_emb.inv_freq",)
_TIED_HEAD = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"
#: Names shown in an error before the rest is counted.
_SHOWN = 5
#: Bytes that are compared at a time.
_TILE_BYTES = 1 << 22


def ignored_tensors(checkpoint: Checkpoint, rules: Iterable[TensorRule]) -> tuple[str, ...]:
    """Tensors that no rule uses, by name; once `refuse_unused` has passed, they add nothing to the model."""
    used = {rule.source for rule in rules}
    if checkpoint.kind == "gguf":
        used |= ROPE_TENSORS
    return tuple(sorted(name for name in checkpoint.tensors if name not in used))


def refuse_unused(config: ModelConfig, checkpoint: Checkpoint, rules: Iterable[TensorRule]) -> None:
    """Raise UnsupportedCheckpointError for tensors that no rule uses.

    Inverse frequencies may be there, and a head that repeats the embedding it is tied to; one with values
    of its own is refused.
    """
    foreign = [name for name in ignored_tensors(checkpoint, rules) if not name.endswith(_DERIVED_ENDS)]
    if config.tied_embeddings and _TIED_HEAD in foreign:
        _check_tied(checkpoint)
        foreign.remove(_TIED_HEAD)
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        raise UnsupportedCheckpointError(
            f"{checkpoint.path} holds tensors that {config.architecture} does not use: "
            f"{', '.join(foreign[:_SHOWN])}{more}; it is of another kind than its config says"
        )


def _check_tied(checkpoint: Checkpoint) -> None:
    """Some tools save the shared matrix under both names; then both must hold the same."""
    head, embedding = checkpoint.tensors[_TIED_HEAD], checkpoint.tensors.get(_EMBEDDING)
    if embedding is None or not _equal(head, embedding):
        raise UnsupportedCheckpointError(
            f"{checkpoint.path}: the config ties the head to the embedding, and {_TIED_HEAD!r} holds other "
            f"values; set tie_word_embeddings to false in config.json to use them, or remove the tensor"
        )


def _equal(left: LazyTensor, right: LazyTensor) -> bool:
    """Whether two matrices are stored alike, to the last bit."""
    if left.dtype != right.dtype or tuple(left.shape) != tuple(right.shape):
        return False
    rows = left.shape[0]
    step = max(1, _TILE_BYTES // max(1, left.read_rows(0, 1).nbytes))
    return all(
        np.array_equal(left.read_rows(start, stop), right.read_rows(start, stop))
        for start, stop in ((first, min(first + step, rows)) for first in range(0, rows, step))
    )
