"""Grouped-query attention over a KV cache, as ONNX nodes in two ways.

`StandardAttention` uses operators of the ONNX standard only and appends to the past with `Concat`.
`FusedAttention` is ONNX Runtime's `GroupQueryAttention`, which rotates, masks and writes new keys and values
into the past's own buffer.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edgeseek.architectures import ModelConfig
from edgeseek.export.onnx_graph import Graph

_INT32, _FLOAT = 6, 1
#: Added to scores that may not count.
_MASKED = -1e30


class Attention(Protocol):
    """How the layers of one graph attend."""

    def heads(self, value: str, count: int) -> str:
        """[batch * sequence, count * head_dim] as [batch, sequence, count, head_dim]."""
        ...

    def run(self, layer: int, q: str, k: str, v: str) -> str:
        """Attend with what `heads` made, not yet rotated; gives [batch * sequence, heads * head_dim]."""
        ...

    def declare_present(self, layer: int) -> None:
        """Declare the layer's keys and values as outputs of the graph."""
        ...


class _Base:
    def __init__(
        self,
        graph: Graph,
        config: ModelConfig,
        dtype: npt.DTypeLike,
        _ids: str,
        mask: str,
        shape: str,
        tables: tuple[str, str],
    ) -> None:
        self._graph, self._config, self._dtype = graph, config, dtype
        self._mask, self._shape = mask, shape
        self._cos, self._sin = tables
        self._head_shapes: dict[int, str] = {}

    def heads(self, value: str, count: int) -> str:
        """See `Attention.heads`."""
        if count not in self._head_shapes:
            parts = self._shape, self._graph.ints(count, self._config.head_dim)
            self._head_shapes[count] = self._graph.add("Concat", *parts, axis=0, name=f"shape.{count}_heads")
        return self._graph.add("Reshape", value, self._head_shapes[count], name="heads")

    def declare_present(self, layer: int) -> None:
        """See `Attention.declare_present`."""
        for part in ("key", "value"):
            self._graph.output(
                f"present.{layer}.{part}", self._dtype, self._cache_shape("total_sequence_length")
            )

    def _past(self, layer: int) -> tuple[str, str]:
        key, value = (
            self._graph.input(
                f"past_key_values.{layer}.{part}", self._dtype, self._cache_shape("past_sequence_length")
            )
            for part in ("key", "value")
        )
        return key, value

    def _cache_shape(self, length: str) -> tuple[int | str, ...]:
        return "batch_size", self._config.num_kv_heads, length, self._config.head_dim


class StandardAttention(_Base):
    """Operators of the ONNX standard only. Padding may be on either side of a sequence."""

    def __init__(
        self,
        graph: Graph,
        config: ModelConfig,
        dtype: npt.DTypeLike,
        ids: str,
        mask: str,
        shape: str,
        tables: tuple[str, str],
    ) -> None:
        super().__init__(graph, config, dtype, ids, mask, shape, tables)
        whole = graph.add("Shape", mask, name="mask.shape")
        total = graph.add("Slice", whole, graph.ints(1), graph.ints(2), name="total")
        new = graph.add("Slice", shape, graph.ints(1), graph.ints(2), name="new")
        self._first = graph.add("Sub", total, new, name="past")
        self._total = total
        self._rotation = self._angles()
        self._bias: dict[int, str] = {}

    def run(self, layer: int, q: str, k: str, v: str) -> str:
        """See `Attention.run`."""
        graph, config, name = self._graph, self._config, f"layers.{layer}.attn"
        group = config.num_heads // config.num_kv_heads
        past_key, past_value = self._past(layer)
        q = self._rotated(graph.add("Transpose", q, perm=[0, 2, 1, 3], name=f"{name}.q.heads"))
        k = self._rotated(graph.add("Transpose", k, perm=[0, 2, 1, 3], name=f"{name}.k.heads"))
        v = graph.add("Transpose", v, perm=[0, 2, 1, 3], name=f"{name}.v.heads")
        keys = graph.add("Concat", past_key, k, axis=2, name=f"present.{layer}.key")
        values = graph.add("Concat", past_value, v, axis=2, name=f"present.{layer}.value")
        scale = graph.constant(1 / math.sqrt(config.head_dim), np.float32)
        grouped = graph.ints(0, config.num_kv_heads, group, -1, config.head_dim)
        q = graph.add(
            "Reshape", graph.add("Mul", q, scale, name=f"{name}.q.scaled"), grouped, name=f"{name}.q5"
        )
        one = graph.ints(2)
        k5 = graph.add("Unsqueeze", keys, one, name=f"{name}.k5")
        turned = graph.add("Transpose", k5, perm=[0, 1, 2, 4, 3], name=f"{name}.k.turned")
        scores = graph.add("MatMul", q, turned, name=f"{name}.scores")
        masked = graph.add("Add", scores, self._mask_for(config.window(layer)), name=f"{name}.masked")
        shares = graph.add("Softmax", masked, axis=-1, name=f"{name}.shares")
        v5 = graph.add("Unsqueeze", values, one, name=f"{name}.v5")
        mixed = graph.add("MatMul", shares, v5, name=f"{name}.mixed")
        rows = graph.add("Transpose", mixed, perm=[0, 3, 1, 2, 4], name=f"{name}.rows")
        return graph.add("Reshape", rows, graph.ints(-1, config.attention_width), name=name)

    def _angles(self) -> tuple[str, str]:
        """Cosines and sines of the new tokens, [batch, 1, sequence, head_dim / 2]; positions skip padding."""
        graph = self._graph
        counted = graph.add("CumSum", self._mask, graph.constant(1, np.int64), name="positions.counted")
        positions = graph.add("Sub", counted, graph.ints(1), name="positions.all")
        positions = graph.add("Max", positions, graph.ints(0), name="positions.least")
        new = graph.add("Slice", positions, self._first, self._total, graph.ints(1), name="positions")
        cos, sin = (
            graph.add(
                "Unsqueeze",
                graph.add("Gather", table, new, axis=0, name=name),
                graph.ints(1),
                name=f"{name}.1",
            )
            for table, name in ((self._cos, "cos"), (self._sin, "sin"))
        )
        return cos, sin

    def _rotated(self, value: str) -> str:
        """Dimensions i and i + head_dim / 2 are a pair (arXiv 2104.09864, half-split convention)."""
        graph, (cos, sin) = self._graph, self._rotation
        half = self._config.head_dim // 2
        low, high = graph.add_many("Split", (value, graph.ints(half, half)), 2, axis=-1, name="rope.split")

        def product(a: str, b: str) -> str:
            return graph.add("Mul", a, b, name="rope.product")

        first = graph.add("Sub", product(low, cos), product(high, sin), name="rope.low")
        second = graph.add("Add", product(high, cos), product(low, sin), name="rope.high")
        return graph.add("Concat", first, second, axis=-1, name="rope")

    def _mask_for(self, window: int) -> str:
        """0 where a token may look and a large negative number elsewhere, [batch, 1, 1, sequence, total]."""
        if window in self._bias:
            return self._bias[window]
        graph = self._graph
        zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
        total = graph.add("Squeeze", self._total, graph.ints(0), name="mask.total")
        first = graph.add("Squeeze", self._first, graph.ints(0), name="mask.first")
        keys = graph.add("Range", zero, total, one, name="mask.keys")
        asking = graph.add("Range", first, total, one, name="mask.queries")
        asking = graph.add("Unsqueeze", asking, graph.ints(1), name="mask.queries.1")
        distance = graph.add("Sub", asking, keys, name="mask.distance")
        allowed = graph.add("GreaterOrEqual", distance, zero, name="mask.causal")
        if window:
            near = graph.add("Less", distance, graph.constant(window, np.int64), name="mask.near")
            allowed = graph.add("And", allowed, near, name="mask.window")
        real = graph.add("Equal", self._mask, one, name="mask.real")
        real = graph.add("Unsqueeze", real, graph.ints(1, 2, 3), name="mask.real.5")
        allowed = graph.add("And", real, allowed, name="mask.allowed")
        bias = graph.add(
            "Where",
            allowed,
            graph.constant(0, np.float32),
            graph.constant(_MASKED, np.float32),
            name="mask.bias",
        )
        self._bias[window] = bias
        return bias


class FusedAttention(_Base):
    """`com.microsoft.GroupQueryAttention`. Sequences of a batch begin at its left side."""

    def __init__(
        self,
        graph: Graph,
        config: ModelConfig,
        dtype: npt.DTypeLike,
        ids: str,
        mask: str,
        shape: str,
        tables: tuple[str, str],
    ) -> None:
        super().__init__(graph, config, dtype, ids, mask, shape, tables)
        # The operator wants the index of each sequence's last token, and the longest sequence's length.
        tokens = graph.add("ReduceSum", mask, graph.ints(1), keepdims=0, name="lengths")
        last = graph.add("Sub", tokens, graph.ints(1), name="lengths.last")
        self._lengths = graph.add("Cast", last, to=_INT32, name="lengths.int32")
        total = graph.add("Gather", graph.add("Shape", mask, name="mask.shape"), graph.constant(1, np.int64))
        self._total = graph.add("Cast", total, to=_INT32, name="total.int32")
        self._flat = {
            count: graph.add(
                "Concat", shape, graph.ints(count * config.head_dim), axis=0, name=f"flat.{count}"
            )
            for count in {config.num_heads, config.num_kv_heads}
        }

    def run(self, layer: int, q: str, k: str, v: str) -> str:
        """See `Attention.run`."""
        graph, config, name = self._graph, self._config, f"layers.{layer}.attn"
        counts = config.num_heads, config.num_kv_heads, config.num_kv_heads
        joined = [
            graph.add("Reshape", value, self._flat[count], name=f"{name}.{part}.joined")
            for part, value, count in zip("qkv", (q, k, v), counts, strict=True)
        ]
        window = config.window(layer)
        mixed, key, value = graph.add_many(
            "GroupQueryAttention",
            [*joined, *self._past(layer), self._lengths, self._total, self._cos, self._sin],
            3,
            domain="com.microsoft",
            name=name,
            num_heads=config.num_heads,
            kv_num_heads=config.num_kv_heads,
            scale=1 / math.sqrt(config.head_dim),
            do_rotary=1,
            rotary_interleaved=0,
            # The operator counts the tokens before the one that attends, and that one.
            local_window_size=window if window else -1,
        )
        graph.rename(key, f"present.{layer}.key")
        graph.rename(value, f"present.{layer}.value")
        return graph.add("Reshape", mixed, graph.ints(-1, config.attention_width), name=f"{name}.rows")
