"""How much each input column of each matrix matters, estimated from the weights alone.

The squared error of a linear layer's output weighs column j with E[x_j²] of its input. Without a text to
measure that on, it is followed through the network: embeddings give the residual stream's second moments,
an RMSNorm scales them to a mean of 1 and by its squared weights, and a matrix with independent inputs of
second moments m gives outputs with second moments W² m. Attention is taken to pass on what one position
holds, and the gate's input to be normal. Rough as that is, it finds the columns that norms turn up or down,
and rounding with it loses less than rounding with all columns alike (docs/gguf.md has figures).

Knows Llama-shaped decoders only; other models have no estimate.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgeseek.architectures import ModelConfig
from edgeseek.export.source import ModelSource, SourceTensor, row_ranges
from edgeseek.quantize.packing import Floats

#: Weights squared at once.
_PIECE_WEIGHTS = 1 << 20
#: Points of the Gauss-Hermite quadrature for the gate's mean square.
_POINTS = 41


def estimated_importance(source: ModelSource) -> Mapping[str, Floats]:
    """Importance [columns] by package name for the matrices of a Llama-shaped decoder; empty for others.

    Reads the weights of attention's values and outputs and of the feed-forward once.
    """
    config = source.config
    if not all(name in source.tensors for name in _needed(config)):
        return {}
    found: dict[str, Floats] = {}
    stream = _column_means(source.tensors["embed.weight"])
    for layer in range(config.num_layers):
        part = f"layers.{layer}."
        normed = _normed(source, part + "attn_norm.weight", stream)
        for name in ("q", "k", "v"):
            found[f"{part}attn.{name}.weight"] = normed
        heads = _through(source, part + "attn.v", normed).reshape(config.num_kv_heads, config.head_dim)
        mixed = np.repeat(heads, config.num_heads // config.num_kv_heads, axis=0).reshape(-1)
        found[part + "attn.o.weight"] = mixed
        stream = stream + _through(source, part + "attn.o", mixed)
        normed = _normed(source, part + "mlp_norm.weight", stream)
        found[part + "mlp.gate.weight"] = found[part + "mlp.up.weight"] = normed
        gated = _silu_squares(_through(source, part + "mlp.gate", normed))
        inner = gated * _through(source, part + "mlp.up", normed)
        found[part + "mlp.down.weight"] = inner
        stream = stream + _through(source, part + "mlp.down", inner)
    output = "embed.weight" if config.tied_embeddings else "head.weight"
    found[output] = _normed(source, "final_norm.weight", stream)
    return {name: moments for name, moments in found.items() if np.isfinite(moments).all()}


def _needed(config: ModelConfig) -> list[str]:
    names = ["embed.weight", "final_norm.weight"]
    parts = ("attn_norm", "mlp_norm", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down")
    names += [f"layers.{layer}.{part}.weight" for layer in range(config.num_layers) for part in parts]
    return names


def _normed(source: ModelSource, norm: str, stream: Floats) -> Floats:
    weight = source.tensors[norm].floats(0, 1)[0]
    mean = stream.mean()
    result: Floats = weight * weight * (stream / mean if mean > 0 else np.ones_like(stream))
    return result


def _through(source: ModelSource, linear: str, moments: Floats) -> Floats:
    """Second moments of a linear layer's outputs."""
    tensor = source.tensors[linear + ".weight"]
    parts = []
    for start, stop in row_ranges(tensor, 1, _PIECE_WEIGHTS):
        rows = tensor.floats(start, stop)
        parts.append((rows * rows) @ moments)
    outputs: Floats = np.concatenate(parts)
    bias = source.tensors.get(linear + ".bias")
    if bias is not None:
        outputs = outputs + bias.floats(0, 1)[0] ** 2
    return outputs


def _column_means(tensor: SourceTensor) -> Floats:
    """Mean square of each column."""
    sums = np.zeros(tensor.shape[1], np.float64)
    for start, stop in row_ranges(tensor, 1, _PIECE_WEIGHTS):
        rows = tensor.floats(start, stop)
        sums += np.einsum("ij,ij->j", rows, rows)
    return (sums / tensor.shape[0]).astype(np.float32)


def _silu_squares(moments: Floats) -> Floats:
    """E[silu(a)²] of normal a with these second moments."""
    points, shares = np.polynomial.hermite_e.hermegauss(_POINTS)
    inputs = points[:, None] * np.sqrt(moments)[None]
    outputs = inputs / (1 + np.exp(-inputs))
    result: Floats = (shares / shares.sum() @ (outputs * outputs)).astype(np.float32)
    return result
