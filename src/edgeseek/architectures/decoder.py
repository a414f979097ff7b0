"""What Llama-shaped decoders have in common: common config keys, tensor names, tensor rules.

A layer is RMSNorm, grouped-query attention, RMSNorm, SwiGLU. Knows the two naming styles of the world
(Hugging Face, GGUF) and the package's own names; families say which biases exist and how their sliding
window is spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from edgeseek.architectures.experts import GGUF_KEYS, expert_rules, gguf_moe, huggingface_moe
from edgeseek.architectures.fields import MAX_LAYERS, Fields, config_fields
from edgeseek.architectures.rope_gguf import LOG_MULTIPLIER, ROPE_KEYS, gguf_rope
from edgeseek.architectures.rope_keys import extended_context, huggingface_rope
from edgeseek.architectures.spec import LatentAttention, ModelConfig, Role, TensorRule
from edgeseek.checkpoints.base import Checkpoint, CheckpointKind
from edgeseek.checkpoints.fp8 import BLOCK as FP8_BLOCK
from edgeseek.errors import CheckpointFormatError, MissingTensorError, UnsupportedCheckpointError

#: Package name of a layer's linear -> (Hugging Face name, GGUF name).
LINEARS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "attn.q": ("self_attn.q_proj", "attn_q"),
        "attn.k": ("self_attn.k_proj", "attn_k"),
        "attn.v": ("self_attn.v_proj", "attn_v"),
        "attn.o": ("self_attn.o_proj", "attn_output"),
        "mlp.gate": ("mlp.gate_proj", "ffn_gate"),
        "mlp.up": ("mlp.up_proj", "ffn_up"),
        "mlp.down": ("mlp.down_proj", "ffn_down"),
    }
)
_NORMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "attn_norm": ("input_layernorm", "attn_norm"),
        "mlp_norm": ("post_attention_layernorm", "ffn_norm"),
    }
)
_HEAD_NORMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "attn.q_norm": ("self_attn.q_norm", "attn_q_norm"),
        "attn.k_norm": ("self_attn.k_norm", "attn_k_norm"),
    }
)
#: GGUF metadata that scales or routes values: refused unless it holds the neutral value.
_NEUTRAL_GGUF: Mapping[str, float] = MappingProxyType(
    {
        "expert_count": 0,
        "expert_used_count": 0,
        "expert_shared_count": 0,
        "logit_scale": 1,
        "embedding_scale": 1,
        "residual_scale": 1,
        "attention.scale": 0,
        "attention.clamp_kqv": 0,
        "attention.max_alibi_bias": 0,
        "attn_logit_softcapping": 0,
        "final_logit_softcapping": 0,
    }
)
#: GGUF metadata that is read elsewhere or changes nothing here.
_HARMLESS_GGUF = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.layer_norm_epsilon",
        "attention.sliding_window",
        "attention.causal",
        *ROPE_KEYS,
    }
)
#: Any other key of these kinds is taken to change the computation.
_MATHS_STARTS = ("attention.", "rope.", "expert")
_MATHS_ENDS = ("scale", "softcapping")


#: Metadata of latent attention, read where a family has it.
LATENT_GGUF_KEYS = frozenset(
    {
        "attention.q_lora_rank",
        "attention.kv_lora_rank",
        "attention.key_length_mla",
        "attention.value_length_mla",
        LOG_MULTIPLIER,
    }
)

#: The rules for a layer's attention tensors.
AttentionRules = Callable[[int], Iterator[TensorRule]]


@dataclass(frozen=True)
class Biases:
    """Which linears carry a bias: always, or only where the checkpoint has the tensor."""

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


def huggingface_config(
    checkpoint: Checkpoint,
    fields: Fields,
    *,
    architecture: str,
    sliding_windows: tuple[int, ...] = (),
    head_dim: int | None = None,
    experts: bool = False,
    latent: Callable[[Fields], LatentAttention] | None = None,
) -> ModelConfig:
    """ModelConfig from a config.json with Llama's key names, which are in `fields`.

    `head_dim` is what a config without that key means; None for the hidden size by the heads. `experts`
    says that the family may have them, under DeepSeek's key names. `latent` reads the keys of a family with
    latent attention.
    """
    act = fields.text("hidden_act", "silu")
    if act != "silu":
        raise UnsupportedCheckpointError(
            f"{fields.origin}: hidden_act is {act!r}, and only 'silu' is known for {architecture}"
        )
    _check_quantization(fields)
    heads = fields.count("num_attention_heads")
    hidden = fields.count("hidden_size")
    if latent is None:
        attention = None
        rotated = head_dim = fields.count(
            "head_dim", max(1, hidden // heads) if head_dim is None else head_dim
        )
    else:
        # Some state the rotated dimensions as head_dim.
        attention = latent(fields)
        rotated, head_dim = attention.rotated_dim, attention.head_dim
    rope = huggingface_rope(fields, rotated)
    generation = Fields(
        checkpoint.text_assets.generation_config, f"generation_config.json of {checkpoint.path}"
    )
    bos = fields.token_ids("bos_token_id") or generation.token_ids("bos_token_id")
    config = ModelConfig(
        architecture=architecture,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size"),
        num_layers=fields.count("num_hidden_layers", most=MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=heads if attention else fields.count("num_key_value_heads", heads),
        head_dim=head_dim,
        max_context=extended_context(rope, fields.count("max_position_embeddings")),
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        rope=rope,
        tied_embeddings=fields.flag("tie_word_embeddings", False),
        sliding_windows=sliding_windows,
        bos_token_id=bos[0] if bos else None,
        eos_token_ids=_unique(generation.token_ids("eos_token_id") + fields.token_ids("eos_token_id")),
        moe=huggingface_moe(fields) if experts else None,
        latent=attention,
    )
    return checked(config, fields.origin)


def _check_quantization(fields: Fields) -> None:
    """Refuse weights quantized in a way that the checkpoint does not deliver as floats."""
    quantization = fields.section("quantization_config")
    if quantization is None:
        return
    method = quantization.text("quant_method", "an unnamed method")
    if method != "fp8":
        raise UnsupportedCheckpointError(
            f"{fields.origin}: the weights are quantized with {method!r}; use the original floats or a GGUF"
        )
    block = quantization.get("weight_block_size")
    kind = quantization.text("fmt", "e4m3")
    if kind != "e4m3" or list(block or ()) != [FP8_BLOCK, FP8_BLOCK]:
        raise UnsupportedCheckpointError(
            f"{quantization.origin}: fp8 weights of format {kind!r} in blocks of {block!r}; known are e4m3 "
            f"in blocks of {[FP8_BLOCK, FP8_BLOCK]}"
        )


def gguf_config(
    checkpoint: Checkpoint,
    architecture: str,
    *,
    family: str | None = None,
    experts: bool = False,
    latent: Callable[[Fields], LatentAttention] | None = None,
) -> ModelConfig:
    """ModelConfig from the GGUF metadata under `architecture`; the vocabulary's size is the embedding's.

    `family` is our name for it where that differs. `experts` says that the family may have them; `latent`
    reads the keys of latent attention.
    """
    fields = config_fields(checkpoint, f"{architecture}.")
    attention = None if latent is None else latent(fields)
    head_dim = _gguf_head_dim(fields) if attention is None else attention.head_dim
    rotated = head_dim if attention is None else attention.rotated_dim
    rope = gguf_rope(fields, checkpoint.tensors, rotated, log_multiplier=attention is not None)
    known = GGUF_KEYS if experts else frozenset()
    refuse_unknown_gguf_maths(fields, known | LATENT_GGUF_KEYS if attention else known)
    heads = fields.count("attention.head_count")
    embedding = checkpoint.tensors.get("token_embd.weight")
    if embedding is None:
        raise MissingTensorError(
            f"{checkpoint.path} has no tensor 'token_embd.weight'; it is a vocabulary only or incomplete"
        )
    text = Fields(checkpoint.text_assets.gguf_metadata, fields.origin, "tokenizer.ggml.")
    bos = text.token_ids("bos_token_id")
    ends = (text.token_ids(f"{name}_token_id") for name in ("eos", "eot", "eom"))
    config = ModelConfig(
        architecture=family or architecture,
        vocab_size=embedding.shape[0],
        hidden_size=fields.count("embedding_length"),
        intermediate_size=fields.count("feed_forward_length"),
        num_layers=fields.count("block_count", most=MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=heads if attention else fields.count("attention.head_count_kv", heads),
        head_dim=head_dim,
        max_context=extended_context(rope, fields.count("context_length")),
        rms_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope=rope,
        tied_embeddings="output.weight" not in checkpoint.tensors,
        sliding_windows=_gguf_sliding_windows(fields),
        bos_token_id=bos[0] if bos else None,
        eos_token_ids=_unique(tuple(token for ids in ends for token in ids)),
        moe=gguf_moe(fields, corrected=has_corrections(checkpoint)) if experts else None,
        latent=attention,
    )
    return checked(config, fields.origin)


def _gguf_head_dim(fields: Fields) -> int:
    """Dimensions of a head: `attention.key_length`, else hidden size by heads; values must be as wide."""
    derived = max(1, fields.count("embedding_length") // fields.count("attention.head_count"))
    keys = fields.count("attention.key_length", derived)
    values = fields.count("attention.value_length", keys)
    if keys != values:
        raise UnsupportedCheckpointError(
            f"{fields.origin}: keys have {keys} dimensions and values {values}; only equal ones are supported"
        )
    return keys


def _gguf_sliding_windows(fields: Fields) -> tuple[int, ...]:
    """One span for all layers where the metadata names one."""
    window = fields.get("attention.sliding_window")
    if window is None or window == 0:
        return ()
    return (fields.count("attention.sliding_window"),) * fields.count("block_count", most=MAX_LAYERS)


def has_corrections(checkpoint: Checkpoint) -> bool:
    """Whether a GGUF holds biases for the choice of experts."""
    return any(name.endswith(".exp_probs_b.bias") for name in checkpoint.tensors)


def refuse_unknown_gguf_maths(fields: Fields, known: frozenset[str] = frozenset()) -> None:
    """Raise UnsupportedCheckpointError for metadata that would change the result and is not known.

    `known` are keys, without the prefix, that the family reads itself.
    """
    if not fields.flag("attention.causal", True):
        raise UnsupportedCheckpointError(
            f"{fields.origin}: the model is not causal; only decoders are supported"
        )
    for key in sorted(fields.values):
        if not key.startswith(fields.prefix):
            continue
        name, value = key[len(fields.prefix) :], fields.values[key]
        if name in _HARMLESS_GGUF or name in known:
            continue
        neutral = _NEUTRAL_GGUF.get(name)
        if neutral is not None:
            unknown = value not in (0, neutral)
        else:
            unknown = name.startswith(_MATHS_STARTS) or name.endswith(_MATHS_ENDS)
        if unknown:
            raise UnsupportedCheckpointError(
                f"{fields.origin}: {key!r} is {value!r}, which changes the computation in an unknown way"
            )


def checked(config: ModelConfig, origin: str) -> ModelConfig:
    """The config with the usable EOS ids; raises CheckpointFormatError where its numbers contradict."""
    if config.num_heads % config.num_kv_heads:
        raise CheckpointFormatError(
            f"{origin}: {config.num_heads} attention heads cannot share {config.num_kv_heads} key-value heads"
        )
    if config.head_dim % 2:
        raise CheckpointFormatError(
            f"{origin}: heads of {config.head_dim} dimensions cannot be rotated in pairs"
        )
    if config.bos_token_id is not None and config.bos_token_id >= config.vocab_size:
        raise CheckpointFormatError(
            f"{origin}: the BOS id {config.bos_token_id} lies outside the vocabulary of {config.vocab_size}"
        )
    # An end-of-sequence id outside the vocabulary can never be drawn.
    ends = tuple(token for token in config.eos_token_ids if token < config.vocab_size)
    return config.with_changes(eos_token_ids=ends)


def decoder_rules(
    config: ModelConfig,
    kind: CheckpointKind,
    biases: Biases,
    *,
    head_norms: bool = False,
    attention: AttentionRules | None = None,
) -> Iterator[TensorRule]:
    """Rules for every tensor of a Llama-shaped decoder, in package order.

    `head_norms` asks for the weights of an RMSNorm over each query and key head. `attention` gives the
    rules of a layer's attention where it is another than grouped-query attention.
    """
    style = 0 if kind == "huggingface" else 1
    table = (config.vocab_size, config.hidden_size)
    yield TensorRule(
        "embed.weight", ("model.embed_tokens.weight", "token_embd.weight")[style], table, "embedding"
    )
    for layer in range(config.num_layers):
        yield from _layer_rules(config, layer, style, biases, head_norms, attention)
    yield TensorRule(
        "final_norm.weight",
        ("model.norm.weight", "output_norm.weight")[style],
        (config.hidden_size,),
        "vector",
    )
    if not config.tied_embeddings:
        yield TensorRule("head.weight", ("lm_head.weight", "output.weight")[style], table, "linear")


def decoder_shapes(
    config: ModelConfig, biases: Biases, *, head_norms: bool = False, attention: AttentionRules | None = None
) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Package tensor name -> (logical shape, whether it may be absent)."""
    rules = decoder_rules(config, "huggingface", biases, head_norms=head_norms, attention=attention)
    return {rule.name: (rule.shape, rule.optional) for rule in rules}


def permuted(rule: TensorRule, config: ModelConfig) -> int:
    """Heads whose rows GGUF's llama interleaves in this tensor, 0 for none."""
    if ".attn.q." in rule.name:
        return config.num_heads
    return config.num_kv_heads if ".attn.k." in rule.name else 0


def _layer_rules(
    config: ModelConfig,
    layer: int,
    style: int,
    biases: Biases,
    head_norms: bool,
    attention: AttentionRules | None,
) -> Iterator[TensorRule]:
    source = (f"model.layers.{layer}.", f"blk.{layer}.")[style]
    name = f"layers.{layer}."
    shapes = linear_shapes(config)
    for part, norm in (("attn", "attn_norm"), ("mlp", "mlp_norm")):
        vector: Role = "vector"
        yield TensorRule(
            f"{name}{norm}.weight", f"{source}{_NORMS[norm][style]}.weight", (config.hidden_size,), vector
        )
        if part == "mlp" and config.has_experts(layer):
            yield from expert_rules(config, layer, ("huggingface", "gguf")[style])
            continue
        if part == "attn" and attention is not None:
            yield from attention(layer)
            continue
        for linear, names in LINEARS.items():
            if not linear.startswith(part + "."):
                continue
            shape = shapes[linear]
            yield TensorRule(f"{name}{linear}.weight", f"{source}{names[style]}.weight", shape, "linear")
            if linear in biases.required or linear in biases.optional:
                yield TensorRule(
                    f"{name}{linear}.bias",
                    f"{source}{names[style]}.bias",
                    shape[:1],
                    vector,
                    optional=linear not in biases.required,
                )
        if head_norms and part == "attn":
            for norm, names in _HEAD_NORMS.items():
                yield TensorRule(
                    f"{name}{norm}.weight", f"{source}{names[style]}.weight", (config.head_dim,), vector
                )


def linear_shapes(config: ModelConfig) -> Mapping[str, tuple[int, int]]:
    """(output channels, inputs) of each linear of a layer."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "attn.q": (queries, hidden),
        "attn.k": (keys, hidden),
        "attn.v": (keys, hidden),
        "attn.o": (hidden, queries),
        "mlp.gate": (inner, hidden),
        "mlp.up": (inner, hidden),
        "mlp.down": (hidden, inner),
    }


def _unique(ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ids))
