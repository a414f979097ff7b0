"""What a model is, independent of the checkpoint it came from.

Owns `ModelConfig` (the hyper-parameters the core needs) and `TensorRule` (which checkpoint tensor
becomes which package tensor). Knows nothing of files, schemes or kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Role = Literal["linear", "embedding", "vector"]
RopeKind = Literal["default", "linear"]


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding (Su et al., RoFormer, arXiv 2104.09864), half-split convention.

    `kind` "linear" divides positions by `factor`; "default" ignores it.
    """

    theta: float = 10000.0
    kind: RopeKind = "default"
    factor: float = 1.0


@dataclass(frozen=True)
class ModelConfig:
    """Hyper-parameters of a decoder-only transformer, in the field's standard terms."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_context: int
    rms_eps: float
    rope: Rope = field(default_factory=Rope)
    tied_embeddings: bool = False
    #: Attention span per layer: 0 attends to all positions, n to the last n.
    sliding_windows: tuple[int, ...] = ()
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def window(self, layer: int) -> int:
        """Attention span of `layer`; 0 means unlimited."""
        return self.sliding_windows[layer] if self.sliding_windows else 0

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON values that `from_json` reads back to an equal config."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelConfig:
        """Inverse of `to_json`; unknown or missing keys raise TypeError."""
        values = dict(data)
        values["rope"] = Rope(**values["rope"])
        for key in ("sliding_windows", "eos_token_ids"):
            values[key] = tuple(values[key])
        return cls(**values)

    def with_changes(self, **changes: Any) -> ModelConfig:
        """A copy with some fields replaced."""
        return replace(self, **changes)


@dataclass(frozen=True)
class TensorRule:
    """One package tensor and where it comes from.

    `shape` is (rows, columns) = (output channels, inputs) for matrices and (n,) for vectors, and is
    what the checkpoint must hold. `unpermute_heads` is set where the checkpoint stores Q or K rows
    with the two halves of each head interleaved (GGUF's llama): the row order of each of that many
    heads is restored at import.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    role: Role
    optional: bool = False
    unpermute_heads: int = 0
