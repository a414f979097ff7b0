"""ModelConfig of Llama-shaped decoders, from config.json with Llama's keys and from GGUF metadata.

Families say how their sliding window is spelled, and read what is their own through callables. Tensors are
the business of `decoder.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from edgeseek.architectures.experts import GGUF_KEYS as EXPERT_KEYS
from edgeseek.architectures.experts import gguf_moe, huggingface_moe
from edgeseek.architectures.fields import MAX_LAYERS, Fields, config_fields
from edgeseek.architectures.gguf_keys import LATENT_GGUF_KEYS, refuse_unknown_gguf_maths
from edgeseek.architectures.rope_gguf import gguf_rope
from edgeseek.architectures.rope_keys import extended_context, huggingface_rope
from edgeseek.architectures.spec import LatentAttention, ModelConfig
from edgeseek.checkpoints.base import Checkpoint
from edgeseek.errors import CheckpointFormatError, MissingTensorError, UnsupportedCheckpointError


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
    # Running a package needs families, but nothing that reads weights.
    from edgeseek.checkpoints.fp8 import BLOCK

    block = quantization.get("weight_block_size")
    kind = quantization.text("fmt", "e4m3")
    if kind != "e4m3" or list(block or ()) != [BLOCK, BLOCK]:
        raise UnsupportedCheckpointError(
            f"{quantization.origin}: fp8 weights of format {kind!r} in blocks of {block!r}; known are e4m3 "
            f"in blocks of {[BLOCK, BLOCK]}"
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
    known = EXPERT_KEYS if experts else frozenset()
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


def _unique(ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ids))
