"""The graph of a Llama-shaped decoder: RMSNorm, grouped-query attention, RMSNorm, SwiGLU.

Inputs: `input_ids` [batch, sequence], `attention_mask` [batch, total] over past and new tokens, and
`past_key_values.N.key` / `.value` [batch, kv heads, past, head_dim], keys rotated. Positions follow from the
mask. Outputs: `logits` [batch, sequence, vocabulary] and `present.N.key` / `.value`.

Between attentions tokens are rows of one matrix [batch * sequence, width], so that a linear layer is a
single `Gemm` or `MatMulNBits`. The residual stream and norms are float32 whatever the precision.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgeseek.architectures import ModelConfig
from edgeseek.architectures.rope import inverse_frequencies
from edgeseek.export.onnx import Precision
from edgeseek.export.onnx_attention import Attention, FusedAttention, StandardAttention
from edgeseek.export.onnx_graph import Graph
from edgeseek.export.onnx_weights import Weights
from edgeseek.export.source import SourceTensor

_FLOAT, _FLOAT16 = 1, 10


class DecoderGraph:
    """Builds the graph of `tensors` (by package name) at once. `max_positions` bounds past and new tokens."""

    def __init__(
        self,
        config: ModelConfig,
        tensors: Mapping[str, SourceTensor],
        precision: Precision,
        max_positions: int,
        data_file: str,
    ) -> None:
        self.graph = Graph(data_file=data_file)
        self.weights = Weights(self.graph, precision)
        self._config, self._tensors, self._precision = config, tensors, precision
        self._max_positions = max_positions
        self._build()

    def _build(self) -> None:
        graph, config = self.graph, self._config
        ids = graph.input("input_ids", np.int64, ("batch_size", "sequence_length"))
        mask = graph.input("attention_mask", np.int64, ("batch_size", "total_sequence_length"))
        shape = graph.add("Shape", ids, name="ids.shape")
        attention = self._attention(ids, mask, shape)
        flat = graph.add("Reshape", ids, graph.ints(-1), name="ids.flat")
        hidden = self.weights.embedding(
            "embed.weight", self._tensors["embed.weight"], flat, tied=config.tied_embeddings
        )
        for layer in range(config.num_layers):
            hidden = self._layer(layer, hidden, attention)
        self._head(hidden, shape)
        for layer in range(config.num_layers):
            attention.declare_present(layer)

    def _attention(self, ids: str, mask: str, shape: str) -> Attention:
        config = self._config
        angles = np.arange(self._max_positions, dtype=np.float64)[:, None] * inverse_frequencies(
            config.rope, config.head_dim, self._max_positions
        ).astype(np.float64)
        tables = [
            self.graph.array(name, (table * config.rope.attention_factor).astype(self.weights.dtype))
            for name, table in (("rope.cos", np.cos(angles)), ("rope.sin", np.sin(angles)))
        ]
        kind = StandardAttention if self._precision == "f32" else FusedAttention
        return kind(self.graph, config, self.weights.dtype, ids, mask, shape, (tables[0], tables[1]))

    def _layer(self, layer: int, hidden: str, attention: Attention) -> str:
        graph, name = self.graph, f"layers.{layer}"
        normed = self._narrow(self._norm(f"{name}.attn_norm", hidden))
        q, k, v = (self._linear(f"{name}.attn.{part}", normed) for part in "qkv")
        heads = attention.heads(q, self._config.num_heads), attention.heads(k, self._config.num_kv_heads)
        if f"{name}.attn.q_norm.weight" in self._tensors:
            q, k = (
                self._narrow(self._norm(f"{name}.attn.{part}_norm", self._wide(value)))
                for part, value in zip("qk", heads, strict=True)
            )
        else:
            q, k = heads
        mixed = attention.run(layer, q, k, attention.heads(v, self._config.num_kv_heads))
        hidden = graph.add(
            "Add", hidden, self._wide(self._linear(f"{name}.attn.o", mixed)), name=f"{name}.mid"
        )
        normed = self._narrow(self._norm(f"{name}.mlp_norm", hidden))
        gate = self._linear(f"{name}.mlp.gate", normed)
        active = graph.add(
            "Mul", gate, graph.add("Sigmoid", gate, name=f"{name}.sigmoid"), name=f"{name}.silu"
        )
        product = graph.add("Mul", active, self._linear(f"{name}.mlp.up", normed), name=f"{name}.mlp.product")
        down = self._wide(self._linear(f"{name}.mlp.down", product))
        return graph.add("Add", hidden, down, name=f"{name}.out")

    def _head(self, hidden: str, shape: str) -> None:
        graph, config = self.graph, self._config
        batch = graph.add("Slice", shape, graph.ints(0), graph.ints(1), name="batch")
        normed = self._narrow(self._norm("final_norm", hidden))
        if config.tied_embeddings:
            logits = self.weights.tied_head("embed.weight", self._tensors["embed.weight"], normed)
        else:
            logits = self.weights.linear("head", self._tensors["head.weight"], normed, None, head=True)
        logits = self._wide(logits)
        final = graph.add("Concat", batch, graph.ints(-1, config.vocab_size), axis=0, name="logits.shape")
        graph.add("Reshape", logits, final, name="logits")
        graph.output("logits", np.float32, ("batch_size", "sequence_length", config.vocab_size))

    def _linear(self, name: str, value: str) -> str:
        bias = self._tensors.get(f"{name}.bias")
        return self.weights.linear(name, self._tensors[f"{name}.weight"], value, bias)

    def _norm(self, name: str, value: str) -> str:
        """x / sqrt(mean(x²) + eps) * weight over the last axis (arXiv 1910.07467), in float32."""
        graph = self.graph
        weight = self.weights.vector(f"{name}.weight", self._tensors[f"{name}.weight"])
        square = graph.add("Pow", value, graph.constant(2, np.float32), name=f"{name}.square")
        mean = graph.add("ReduceMean", square, graph.ints(-1), keepdims=1, name=f"{name}.mean")
        shifted = graph.add(
            "Add", mean, graph.constant(self._config.rms_eps, np.float32), name=f"{name}.shift"
        )
        root = graph.add("Sqrt", shifted, name=f"{name}.root")
        scaled = graph.add("Div", value, root, name=f"{name}.scaled")
        return graph.add("Mul", scaled, weight, name=name)

    def _narrow(self, value: str) -> str:
        """To the type of linear layers."""
        return self._cast(value, _FLOAT16)

    def _wide(self, value: str) -> str:
        """To float32."""
        return self._cast(value, _FLOAT)

    def _cast(self, value: str, to: int) -> str:
        return self.graph.add("Cast", value, to=to, name="cast") if self._precision == "f16" else value
