"""Latent attention and experts of tiny DeepSeek models: their config keys and their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: name, rows, columns
Matrix = Callable[[str, int, int], None]
#: name, size, mean, spread
Vector = Callable[[str, int, float, float], None]


@dataclass(frozen=True)
class Latent:
    """Sizes of latent attention; `query_rank` 0 is a q_lora_rank of null."""

    rank: int
    plain: int
    rotated: int
    value: int
    query_rank: int = 0

    def config(self) -> dict[str, Any]:
        """Keys of config.json."""
        return {
            "kv_lora_rank": self.rank,
            "q_lora_rank": self.query_rank or None,
            "qk_nope_head_dim": self.plain,
            "qk_rope_head_dim": self.rotated,
            "v_head_dim": self.value,
            # What transformers writes there; the heads' own sizes are the ones above.
            "head_dim": self.rotated,
        }

    def draw(self, prefix: str, heads: int, hidden: int, bias: bool, matrix: Matrix, vector: Vector) -> None:
        """Draw a layer's attention tensors, all but o_proj's weight."""

        def biased(name: str, rows: int, columns: int) -> None:
            matrix(f"{prefix}{name}.weight", rows, columns)
            if bias:
                vector(f"{prefix}{name}.bias", rows, 0.0, 0.5)

        queries = heads * (self.plain + self.rotated)
        if self.query_rank:
            biased("q_a_proj", self.query_rank, hidden)
            vector(prefix + "q_a_layernorm.weight", self.query_rank, 1.0, 0.2)
            matrix(prefix + "q_b_proj.weight", queries, self.query_rank)
        else:
            matrix(prefix + "q_proj.weight", queries, hidden)
        biased("kv_a_proj_with_mqa", self.rank + self.rotated, hidden)
        vector(prefix + "kv_a_layernorm.weight", self.rank, 1.0, 0.2)
        matrix(prefix + "kv_b_proj.weight", heads * (self.plain + self.value), self.rank)


@dataclass(frozen=True)
class Experts:
    """Experts from layer `first_layer` on, one of them shared; `routing` are config.json's keys for it."""

    routing: Mapping[str, Any]
    count: int = 8
    per_token: int = 2
    inner: int = 48
    first_layer: int = 1

    def config(self) -> dict[str, Any]:
        """Keys of config.json."""
        return {
            "n_routed_experts": self.count,
            "num_experts_per_tok": self.per_token,
            "n_shared_experts": 1,
            "moe_intermediate_size": self.inner,
            "first_k_dense_replace": self.first_layer,
            **self.routing,
        }

    def draw(self, prefix: str, hidden: int, corrected: bool, matrix: Matrix, vector: Vector) -> None:
        """Draw a layer's router, shared expert and experts."""
        matrix(prefix + "gate.weight", self.count, hidden)
        if corrected:
            vector(prefix + "gate.e_score_correction_bias", self.count, 0.0, 0.3)
        for expert in ("shared_experts", *(f"experts.{i}" for i in range(self.count))):
            for name, rows, columns in (
                ("gate", self.inner, hidden),
                ("up", self.inner, hidden),
                ("down", hidden, self.inner),
            ):
                matrix(f"{prefix}{expert}.{name}_proj.weight", rows, columns)
