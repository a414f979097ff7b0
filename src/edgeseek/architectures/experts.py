"""Mixtures of experts: their keys in config.json and GGUF metadata, and the rules for their tensors.

Knows the two naming styles; families say which routing they have. The names of the keys are those of
DeepSeek's own config.json files and of the `gguf` package's `Keys.LLM`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, get_args

from edgeseek.architectures.fields import MAX_LAYERS, Fields
from edgeseek.architectures.spec import GroupScore, ModelConfig, MoE, Scoring, TensorRule
from edgeseek.checkpoints.base import CheckpointKind
from edgeseek.errors import CheckpointFormatError, UnsupportedCheckpointError

#: Most experts of a layer: DeepSeek-V3 has 256. Bounds the number of tensors a damaged config asks for.
MAX_EXPERTS = 4096

#: GGUF's numbers for what turns the router's outputs into scores (the `gguf` package's ExpertGatingFuncType).
_GGUF_SCORINGS: Mapping[int, Scoring] = MappingProxyType({1: "softmax", 2: "sigmoid"})
#: Metadata that `gguf_moe` reads, without the architecture's prefix.
GGUF_KEYS = frozenset(
    {
        "expert_count",
        "expert_used_count",
        "expert_shared_count",
        "expert_feed_forward_length",
        "expert_shared_feed_forward_length",
        "expert_group_count",
        "expert_group_used_count",
        "expert_gating_func",
        "expert_weights_norm",
        "expert_weights_scale",
        "leading_dense_block_count",
    }
)
#: Package name of an expert's linear -> (Hugging Face name, GGUF name without its ending).
_PARTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"gate": ("gate_proj", "ffn_gate"), "up": ("up_proj", "ffn_up"), "down": ("down_proj", "ffn_down")}
)


def huggingface_moe(fields: Fields) -> MoE | None:
    """The experts of a config.json with DeepSeek's keys; None where `n_routed_experts` is absent.

    `topk_method` says how experts are chosen: "greedy" (also where absent), "group_limited_greedy" (V2) or
    "noaux_tc" (V3, with a bias for the choice). V2's own code scales only weights that it does not
    normalize, V3's scales both. Raises UnsupportedCheckpointError for another method or scoring function.
    """
    if fields.get("n_routed_experts") is None:
        return None
    method = fields.text("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy", "noaux_tc"):
        raise UnsupportedCheckpointError(
            f"{fields.origin}: unknown topk_method {method!r}; known are greedy, group_limited_greedy and "
            f"noaux_tc"
        )
    scoring = fields.text("scoring_func", "softmax")
    if scoring not in get_args(Scoring):
        raise UnsupportedCheckpointError(
            f"{fields.origin}: unknown scoring_func {scoring!r}; known are {', '.join(get_args(Scoring))}"
        )
    wide = fields.count("moe_intermediate_size")
    corrected = method == "noaux_tc"
    normalized = fields.flag("norm_topk_prob", False) and fields.count("num_experts_per_tok") > 1
    scaled = corrected or not normalized
    return checked_moe(
        MoE(
            num_experts=fields.count("n_routed_experts", most=MAX_EXPERTS),
            experts_per_token=fields.count("num_experts_per_tok"),
            intermediate_size=wide,
            shared_size=wide * fields.whole("n_shared_experts", 0),
            first_layer=fields.whole("first_k_dense_replace", 0, most=MAX_LAYERS),
            layer_step=fields.count("moe_layer_freq", 1, most=MAX_LAYERS),
            scoring="sigmoid" if scoring == "sigmoid" else "softmax",
            corrected=corrected,
            groups=1 if method == "greedy" else fields.count("n_group", 1),
            groups_per_token=1 if method == "greedy" else fields.count("topk_group", 1),
            group_score="two_best" if corrected else "best",
            normalized=normalized,
            scale=fields.number("routed_scaling_factor", 1.0) if scaled else 1.0,
        ),
        fields.origin,
    )


def gguf_moe(fields: Fields, *, corrected: bool) -> MoE | None:
    """The experts of GGUF metadata; None where `expert_count` is absent or 0.

    `corrected` says whether the file holds biases for the choice. Raises UnsupportedCheckpointError for an
    unknown gating function.
    """
    experts = fields.whole("expert_count", 0, most=MAX_EXPERTS)
    if experts == 0:
        return None
    gating = fields.whole("expert_gating_func", 0)
    # 0 means unset: softmax, which was the only one when such files were written.
    scoring = _GGUF_SCORINGS.get(gating or 1)
    if scoring is None:
        raise UnsupportedCheckpointError(
            f"{fields.origin}: {fields.prefix}expert_gating_func is {gating}; known are "
            f"{', '.join(f'{number} ({name})' for number, name in _GGUF_SCORINGS.items())}"
        )
    wide = fields.count("expert_feed_forward_length")
    shared = wide * fields.whole("expert_shared_count", 0)
    scale = fields.get("expert_weights_scale")
    return checked_moe(
        MoE(
            num_experts=experts,
            experts_per_token=fields.count("expert_used_count"),
            intermediate_size=wide,
            shared_size=fields.whole("expert_shared_feed_forward_length", shared),
            first_layer=fields.whole("leading_dense_block_count", 0, most=MAX_LAYERS),
            scoring=scoring,
            corrected=corrected,
            groups=fields.count("expert_group_count", 1),
            groups_per_token=fields.count("expert_group_used_count", 1),
            group_score="two_best" if corrected else "best",
            normalized=fields.flag("expert_weights_norm", False),
            # 0 means unset, as in llama.cpp.
            scale=1.0 if scale == 0 else fields.number("expert_weights_scale", 1.0),
        ),
        fields.origin,
    )


def checked_moe(moe: MoE, origin: str) -> MoE:
    """The same; raises CheckpointFormatError where its numbers contradict each other."""
    found = problem(moe)
    if found:
        raise CheckpointFormatError(f"{origin}: {found}")
    return moe


def problem(moe: MoE) -> str | None:
    """What makes `moe` impossible, None if nothing does."""
    if moe.experts_per_token > moe.num_experts:
        return f"{moe.experts_per_token} experts a token are more than the {moe.num_experts} there are"
    if moe.num_experts % moe.groups:
        return f"{moe.num_experts} experts do not divide into {moe.groups} groups"
    if moe.groups_per_token > moe.groups:
        return f"{moe.groups_per_token} groups a token are more than the {moe.groups} there are"
    each = moe.num_experts // moe.groups
    if moe.experts_per_token > moe.groups_per_token * each:
        return (
            f"{moe.experts_per_token} experts a token do not fit into {moe.groups_per_token} groups of {each}"
        )
    if moe.group_score == "two_best" and moe.groups > 1 and each < 2:
        return f"groups of {each} expert have no two best"
    return None


def check_moe(moe: MoE) -> None:
    """Hold a package's experts to their types and to each other. Raises ValueError for what cannot be."""
    counts = (
        "num_experts",
        "experts_per_token",
        "intermediate_size",
        "layer_step",
        "groups",
        "groups_per_token",
    )
    for name in (*counts, "shared_size", "first_layer"):
        value = getattr(moe, name)
        if type(value) is not int or not (1 if name in counts else 0) <= value < 1 << 28:
            raise ValueError(f"moe.{name} is {value!r}")
    scale: Any = moe.scale
    if not isinstance(scale, int | float) or not 0 < scale < 1e30:
        raise ValueError(f"moe.scale is {scale!r}")
    if moe.scoring not in get_args(Scoring) or moe.group_score not in get_args(GroupScore):
        raise ValueError(f"moe scores by {moe.scoring!r} and groups by {moe.group_score!r}")
    flags: tuple[Any, ...] = (moe.corrected, moe.normalized)
    if not all(isinstance(flag, bool) for flag in flags):
        raise ValueError("moe.corrected and moe.normalized are true or false")
    if moe.num_experts > MAX_EXPERTS or (found := problem(moe)):
        raise ValueError(found if moe.num_experts <= MAX_EXPERTS else f"{moe.num_experts} experts")


def expert_rules(config: ModelConfig, layer: int, kind: CheckpointKind) -> Iterator[TensorRule]:
    """Rules for the router, the shared experts and each expert of `layer`, in package order.

    One expert's three matrices lie side by side, since they are read together or not at all.
    """
    moe = config.moe
    if moe is None:
        raise ValueError("the config has no experts")
    name, hidden = f"layers.{layer}.mlp.", config.hidden_size
    gguf = kind == "gguf"
    source = f"blk.{layer}." if gguf else f"model.layers.{layer}.mlp."
    router = "ffn_gate_inp.weight" if gguf else "gate.weight"
    yield TensorRule(name + "router.weight", source + router, (moe.num_experts, hidden), "router")
    if moe.corrected:
        bias = "exp_probs_b.bias" if gguf else "gate.e_score_correction_bias"
        yield TensorRule(name + "router.bias", source + bias, (moe.num_experts,), "vector")
    if moe.shared_size:
        for part, (theirs, short) in _PARTS.items():
            stored = f"{short}_shexp.weight" if gguf else f"shared_experts.{theirs}.weight"
            yield TensorRule(
                f"{name}shared.{part}.weight",
                source + stored,
                _shape(part, moe.shared_size, hidden),
                "linear",
            )
    for expert in range(moe.num_experts):
        for part, (theirs, short) in _PARTS.items():
            yield TensorRule(
                f"{name}experts.{expert}.{part}.weight",
                source + (f"{short}_exps.weight" if gguf else f"experts.{expert}.{theirs}.weight"),
                _shape(part, moe.intermediate_size, hidden),
                "linear",
                stack=moe.num_experts if gguf else 0,
                index=expert if gguf else 0,
            )


def _shape(part: str, inner: int, hidden: int) -> tuple[int, int]:
    return (hidden, inner) if part == "down" else (inner, hidden)
