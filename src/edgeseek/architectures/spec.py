"""What a model is, independent of the checkpoint it came from.

Owns `ModelConfig` (the hyper-parameters the core needs) and `TensorRule` (which checkpoint tensor
becomes which package tensor). Knows nothing of files, schemes or kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

#: A router is a matrix whose values are kept: rounding them would change which experts are chosen.
Role = Literal["linear", "embedding", "vector", "router"]
RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope", "factors"]
Scoring = Literal["softmax", "sigmoid"]
GroupScore = Literal["best", "two_best"]
#: Metadata of a field that came after the package format: written only where it differs from its default,
#: so that packages without it keep their digest.
ADDED: Mapping[str, bool] = MappingProxyType({"added": True})


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding (Su et al., RoFormer, arXiv 2104.09864), half-split convention.

    `kind` says how the frequencies are scaled; `architectures.rope` holds the formulas and their sources.
    Each kind reads `factor`, except "default" and "factors", and of the rest what its comment names.
    """

    theta: float = 10000.0
    kind: RopeKind = "default"
    factor: float = 1.0
    #: Positions of the training before the context was extended: dynamic, llama3, yarn, longrope.
    original_context: int = field(default=0, metadata=ADDED)
    #: llama3: wavelengths over original_context / low are scaled, those under original_context / high kept.
    low_freq_factor: float = field(default=1.0, metadata=ADDED)
    high_freq_factor: float = field(default=4.0, metadata=ADDED)
    #: yarn: pairs that turn more often than `beta_fast` in the original context are kept, less often than
    #: `beta_slow` scaled; `truncate` widens that range to whole pairs.
    beta_fast: float = field(default=32.0, metadata=ADDED)
    beta_slow: float = field(default=1.0, metadata=ADDED)
    truncate: bool = field(default=True, metadata=ADDED)
    #: yarn: weight of the correction that latent attention puts into its softmax scale; 0 for none.
    mscale_all_dim: float = field(default=0.0, metadata=ADDED)
    #: yarn, longrope: what cosines and sines are multiplied with.
    attention_factor: float = field(default=1.0, metadata=ADDED)
    #: factors, longrope: the divisor of each frequency; longrope's beyond the original context.
    factors: tuple[float, ...] = field(default=(), metadata=ADDED)
    long_factors: tuple[float, ...] = field(default=(), metadata=ADDED)


@dataclass(frozen=True)
class MoE:
    """Experts in place of the feed-forward of some layers (DeepSeekMoE, arXiv 2401.06066).

    A token's score for each of `num_experts` experts is the softmax or sigmoid of the router's output. By
    these scores, with a learnt bias added where `corrected` (arXiv 2408.15664), `experts_per_token` are
    chosen out of the `groups_per_token` best of `groups` groups of consecutive experts; a group's own score
    is its best or the sum of its two best. The chosen experts' outputs are summed, weighted by their scores
    without the bias, which where `normalized` are divided by their sum, times `scale`. Shared experts, as
    one feed-forward of `shared_size`, serve every token; 0 for none.
    """

    num_experts: int
    experts_per_token: int
    #: Inner width of one expert.
    intermediate_size: int
    shared_size: int = 0
    #: Layers before this one, and those whose number `layer_step` does not divide, have a plain feed-forward.
    first_layer: int = 0
    layer_step: int = 1
    scoring: Scoring = "softmax"
    corrected: bool = False
    groups: int = 1
    groups_per_token: int = 1
    group_score: GroupScore = "best"
    normalized: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Keys and values of all heads come from one latent vector of `rank` dimensions, beside one rotated key of
    `rotated_dim` that all heads share; the cache holds these two. A query or key has `plain_dim` dimensions
    that are not rotated and then the rotated ones, a value `value_dim`. Queries come through a latent
    vector of their own where `query_rank` is not 0. `rms_eps` is that of the latent vectors' norms, which
    the reference fixes whatever the config says of the others.
    """

    rank: int
    plain_dim: int
    rotated_dim: int
    value_dim: int
    query_rank: int = 0
    rms_eps: float = 1e-6

    @property
    def width(self) -> int:
        """Dimensions of a token in the cache."""
        return self.rank + self.rotated_dim

    @property
    def head_dim(self) -> int:
        """Dimensions of a query or key, rotated or not."""
        return self.plain_dim + self.rotated_dim


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
    #: Experts of some layers; None where all have a plain feed-forward of `intermediate_size`.
    moe: MoE | None = field(default=None, metadata=ADDED)
    #: Latent attention in all layers; `head_dim` is its queries', and `num_kv_heads` then says nothing.
    latent: LatentAttention | None = field(default=None, metadata=ADDED)

    def has_experts(self, layer: int) -> bool:
        """Whether `layer` has experts in place of a plain feed-forward."""
        return self.moe is not None and layer >= self.moe.first_layer and layer % self.moe.layer_step == 0

    @property
    def rotary_dim(self) -> int:
        """Dimensions of a query or key that are rotated, in pairs."""
        return self.head_dim if self.latent is None else self.latent.rotated_dim

    @property
    def attention_width(self) -> int:
        """Dimensions of the attention's output, all heads together."""
        return self.num_heads * (self.head_dim if self.latent is None else self.latent.value_dim)

    def window(self, layer: int) -> int:
        """Attention span of `layer`; 0 means unlimited."""
        return self.sliding_windows[layer] if self.sliding_windows else 0

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON values that `from_json` reads back to an equal config."""
        return {
            key: _written(value) if is_dataclass(value) else value for key, value in _written(self).items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelConfig:
        """Inverse of `to_json`; unknown or missing keys raise TypeError."""
        values = dict(data)
        rope = dict(values["rope"])
        for key in ("factors", "long_factors"):
            rope[key] = tuple(rope.get(key, ()))
        values["rope"] = Rope(**rope)
        if values.get("moe") is not None:
            values["moe"] = MoE(**values["moe"])
        if values.get("latent") is not None:
            values["latent"] = LatentAttention(**values["latent"])
        for key in ("sliding_windows", "eos_token_ids"):
            values[key] = tuple(values[key])
        return cls(**values)

    def with_changes(self, **changes: Any) -> ModelConfig:
        """A copy with some fields replaced."""
        return replace(self, **changes)


@dataclass(frozen=True)
class HeadRows:
    """The same rows of every head of a source matrix [heads * total, columns]: `count` from `first` on.

    They follow each other, a head's [count, columns]; or where `transposed`, a head's [columns, count].
    """

    heads: int
    total: int
    first: int
    count: int
    transposed: bool = False


@dataclass(frozen=True)
class TensorRule:
    """One package tensor and where it comes from.

    `shape` is (rows, columns) = (output channels, inputs) for matrices and (n,) for vectors, and is
    what the checkpoint must hold. `unpermute_heads` is set where the checkpoint stores Q or K rows
    with the two halves of each head interleaved (GGUF's llama): the row order of each of that many
    heads is restored at import, of its last `unpermute_rows` only where that is not 0. Where `stack` is set,
    the source holds that many tensors of this shape one after another (GGUF's experts), and this is number
    `index` of them. `stored_shape` is what the checkpoint must hold where that is another shape, and
    `head_rows` what is taken of it.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    role: Role
    optional: bool = False
    unpermute_heads: int = 0
    stack: int = 0
    index: int = 0
    unpermute_rows: int = 0
    stored_shape: tuple[int, ...] = ()
    head_rows: HeadRows | None = None

    @property
    def source_shape(self) -> tuple[int, ...]:
        """What the checkpoint must hold under `source`."""
        return self.stored_shape or ((self.stack, *self.shape) if self.stack else self.shape)

    @property
    def first_row(self) -> int:
        """Row of the source at which this tensor begins."""
        return self.index * self.shape[0] if self.stack else 0


def _written(item: Any) -> dict[str, Any]:
    """The fields of a dataclass that a package's manifest names, by name."""
    written = {}
    for entry in fields(item):
        value = getattr(item, entry.name)
        if not entry.metadata.get("added") or value != entry.default:
            written[entry.name] = value
    return written
