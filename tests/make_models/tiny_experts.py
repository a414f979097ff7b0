"""Tiny random models with experts, as Hugging Face folders, and what they must give, in plain numpy.

transformers has no DeepSeek-MoE (the class lives in the model's own repository), so the logits are recomputed
here in float64, one token and one expert after the other, from the formulas of arXiv 2401.06066
(DeepSeekMoE), 2405.04434 (group-limited routing) and 2412.19437 (V3's routing). Shares no code with the
package under test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from tests.make_models.tiny import SPECIALS, VOCAB_SIZE, tokenizer_json

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TinyExperts:
    """One configuration: sizes, how its config.json spells the routing (`routing`), and its seed."""

    name: str
    seed: int
    routing: Mapping[str, Any] = field(default_factory=dict)
    hidden_size: int = 80
    intermediate_size: int = 112
    moe_intermediate_size: int = 48
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    layers: int = 3
    experts: int = 8
    experts_per_token: int = 3
    shared: int = 2
    first_dense: int = 1
    every: int = 1

    def config(self) -> dict[str, Any]:
        """The content of config.json, with the keys of DeepSeek-MoE-16B's."""
        return {
            "architectures": ["DeepseekForCausalLM"],
            "model_type": "deepseek",
            "vocab_size": VOCAB_SIZE,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "moe_intermediate_size": self.moe_intermediate_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "n_routed_experts": self.experts,
            "n_shared_experts": self.shared or None,
            "num_experts_per_tok": self.experts_per_token,
            "first_k_dense_replace": self.first_dense,
            "moe_layer_freq": self.every,
            "norm_topk_prob": False,
            "scoring_func": "softmax",
            "hidden_act": "silu",
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "bos_token_id": 0,
            "eos_token_id": 1,
            **self.routing,
        }

    def has_experts(self, layer: int) -> bool:
        """Whether `layer` has experts."""
        return layer >= self.first_dense and layer % self.every == 0


def _by_name(*models: TinyExperts) -> dict[str, TinyExperts]:
    return {model.name: model for model in models}


V2 = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}
V3 = {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "n_group": 4, "topk_group": 2}

#: One model for each way of routing.
CASES: Mapping[str, TinyExperts] = _by_name(
    TinyExperts("greedy", 51),
    TinyExperts("greedy-normalized", 80, {"norm_topk_prob": True, "routed_scaling_factor": 2.0}),
    TinyExperts("greedy-scaled", 76, {"routed_scaling_factor": 1.5}, shared=0, every=2, first_dense=0),
    TinyExperts("group-limited", 42, {**V2, "routed_scaling_factor": 4.0}, experts=12),
    TinyExperts(
        "corrected-groups", 78, {**V3, "norm_topk_prob": True, "routed_scaling_factor": 2.5}, experts=16
    ),
    TinyExperts("corrected-unnormalized", 67, {**V3, "n_group": 1, "topk_group": 1}, shared=1),
)


def tensors(model: TinyExperts) -> dict[str, Floats]:
    """All tensors of `model`, float32, in the order in which they are drawn."""
    random = np.random.RandomState(model.seed)
    out: dict[str, Floats] = {}

    def matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> None:
        out[name] = (random.standard_normal((rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    def vector(name: str, size: int, mean: float, spread: float) -> None:
        out[name] = (mean + spread * random.standard_normal(size)).astype(np.float32)

    def feed_forward(prefix: str, wide: int) -> None:
        matrix(f"{prefix}gate_proj.weight", wide, hidden, 1.5)
        matrix(f"{prefix}up_proj.weight", wide, hidden, 1.5)
        matrix(f"{prefix}down_proj.weight", hidden, wide, 1.5)

    hidden = model.hidden_size
    matrix("model.embed_tokens.weight", VOCAB_SIZE, hidden, np.sqrt(hidden))
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}."
        vector(f"{prefix}input_layernorm.weight", hidden, 1.0, 0.2)
        for name, heads in (("q", model.heads), ("k", model.kv_heads), ("v", model.kv_heads)):
            matrix(f"{prefix}self_attn.{name}_proj.weight", heads * model.head_dim, hidden)
        matrix(f"{prefix}self_attn.o_proj.weight", hidden, model.heads * model.head_dim, 0.5)
        vector(f"{prefix}post_attention_layernorm.weight", hidden, 1.0, 0.2)
        mlp = f"{prefix}mlp."
        if not model.has_experts(layer):
            feed_forward(mlp, model.intermediate_size)
            continue
        # A wide spread of scores, so that rounding decides no choice.
        matrix(f"{mlp}gate.weight", model.experts, hidden, 2.0)
        if model.config().get("topk_method") == "noaux_tc":
            vector(f"{mlp}gate.e_score_correction_bias", model.experts, 0.0, 0.3)
        if model.shared:
            feed_forward(f"{mlp}shared_experts.", model.shared * model.moe_intermediate_size)
        for expert in range(model.experts):
            feed_forward(f"{mlp}experts.{expert}.", model.moe_intermediate_size)
    vector("model.norm.weight", hidden, 1.0, 0.2)
    matrix("lm_head.weight", VOCAB_SIZE, hidden, 4.0)
    return out


def write(model: TinyExperts, folder: Path, changed: Mapping[str, Floats] | None = None) -> Path:
    """Make the folder of `model` (with the tensors of `changed` put in place of its own) and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {
        "config.json": model.config(),
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {"bos_token": SPECIALS[0], "eos_token": SPECIALS[1]},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    save_file({**tensors(model), **(changed or {})}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def prompt_ids(model: TinyExperts, length: int) -> list[int]:
    """`length` token ids, the same for every run, without the special tokens."""
    random = np.random.RandomState(2000 + model.seed)
    return [int(i) for i in random.randint(len(SPECIALS), VOCAB_SIZE, size=length)]


@dataclass(frozen=True)
class Expected:
    """Logits [tokens, vocab] and the weight of each expert [layer][tokens, experts], 0 where not chosen.

    `margin` is the least distance from a score that was chosen to one that was not, relative to it.
    """

    logits: Doubles
    routing: Mapping[int, Doubles]
    margin: float


def expected(model: TinyExperts, ids: list[int], changed: Mapping[str, Floats] | None = None) -> Expected:
    """What `model` must give for `ids`, computed in float64."""
    weights = {
        name: value.astype(np.float64) for name, value in {**tensors(model), **(changed or {})}.items()
    }
    x = weights["model.embed_tokens.weight"][ids]
    routing, margin = {}, np.inf
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}."
        x = x + _attention(model, weights, prefix, _normed(x, weights[f"{prefix}input_layernorm.weight"]))
        y = _normed(x, weights[f"{prefix}post_attention_layernorm.weight"])
        if not model.has_experts(layer):
            x = x + _feed_forward(weights, f"{prefix}mlp.", y)
            continue
        chosen, margins = zip(*(route(model, weights, f"{prefix}mlp.gate.", row) for row in y), strict=True)
        routing[layer] = np.stack(chosen)
        margin = min(margin, *margins)
        x = x + experts_output(model, weights, f"{prefix}mlp.", y, routing[layer])
    logits = _normed(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T
    return Expected(logits, routing, float(margin))


def route(
    model: TinyExperts, weights: Mapping[str, Doubles], prefix: str, row: Doubles
) -> tuple[Doubles, float]:
    """Weight of each expert for one token's `row`, 0 where it is not chosen, and the margin of the choice."""
    config = model.config()
    outputs = weights[f"{prefix}weight"] @ row
    if config["scoring_func"] == "softmax":
        scores = np.exp(outputs - outputs.max())
        scores /= scores.sum()
    else:
        scores = 1 / (1 + np.exp(-outputs))
    method = config.get("topk_method", "greedy")
    choice, margin = scores.copy(), np.inf
    if method == "noaux_tc":
        choice = scores + weights[f"{prefix}e_score_correction_bias"]
    if method != "greedy" and config["n_group"] > 1:
        members = choice.reshape(config["n_group"], -1)
        best = np.sort(members, axis=1)[:, ::-1]
        groups = best[:, 0] if method == "group_limited_greedy" else best[:, 0] + best[:, 1]
        kept = np.argsort(-groups, kind="stable")[: config["topk_group"]]
        ordered = np.sort(groups)[::-1]
        margin = 1 - ordered[config["topk_group"]] / ordered[config["topk_group"] - 1]
        masked = np.full_like(members, -np.inf)
        masked[kept] = members[kept]
        choice = masked.reshape(-1)
    chosen = np.argsort(-choice, kind="stable")[: model.experts_per_token]
    ordered = np.sort(choice)[::-1]
    margin = min(margin, 1 - ordered[model.experts_per_token] / ordered[model.experts_per_token - 1])
    values = scores[chosen]
    scale = config.get("routed_scaling_factor", 1.0)
    if config["norm_topk_prob"]:
        # DeepSeek's code of V2 scales only what it does not normalize; that of V3 scales both.
        values = values / (values.sum() + 1e-20) * (scale if method == "noaux_tc" else 1.0)
    else:
        values = values * scale
    result = np.zeros(model.experts)
    result[chosen] = values
    return result, float(margin)


def experts_output(
    model: TinyExperts, weights: Mapping[str, Doubles], prefix: str, y: Doubles, routing: Doubles
) -> Doubles:
    """What a layer adds for its normed rows `y`, given the weight of each expert for each of them."""
    out = np.zeros_like(y)
    for token, row in enumerate(y):
        for expert in np.flatnonzero(routing[token]):
            out[token] += routing[token, expert] * _feed_forward(weights, f"{prefix}experts.{expert}.", row)
    return out + _feed_forward(weights, f"{prefix}shared_experts.", y) if model.shared else out


def _feed_forward(weights: Mapping[str, Doubles], prefix: str, y: Doubles) -> Doubles:
    gate = y @ weights[f"{prefix}gate_proj.weight"].T
    inner = gate / (1 + np.exp(-gate)) * (y @ weights[f"{prefix}up_proj.weight"].T)
    out: Doubles = inner @ weights[f"{prefix}down_proj.weight"].T
    return out


def _attention(model: TinyExperts, weights: Mapping[str, Doubles], prefix: str, y: Doubles) -> Doubles:
    tokens, width = len(y), model.head_dim
    q, k, v = (
        (y @ weights[f"{prefix}self_attn.{name}_proj.weight"].T).reshape(tokens, -1, width) for name in "qkv"
    )
    angles = np.outer(np.arange(tokens), 10000.0 ** (-np.arange(0, width, 2) / width))[:, None, :]
    q, k = _rotated(q, angles), _rotated(k, angles)
    # The cache holds halves.
    k, v = k.astype(np.float16).astype(np.float64), v.astype(np.float16).astype(np.float64)
    out = np.empty_like(q)
    for head in range(model.heads):
        shared = head * model.kv_heads // model.heads
        scores = q[:, head] @ k[:, shared].T / np.sqrt(width)
        scores[np.triu_indices(tokens, 1)] = -np.inf
        share = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = share / share.sum(axis=1, keepdims=True) @ v[:, shared]
    result: Doubles = out.reshape(tokens, -1) @ weights[f"{prefix}self_attn.o_proj.weight"].T
    return result


def _rotated(x: Doubles, angles: Doubles) -> Doubles:
    low, high = np.split(x, 2, axis=2)
    turned = (low * np.cos(angles) - high * np.sin(angles), high * np.cos(angles) + low * np.sin(angles))
    return np.concatenate(turned, axis=2)


def _normed(x: Doubles, gains: Doubles) -> Doubles:
    result: Doubles = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * gains
    return result
