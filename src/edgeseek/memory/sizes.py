"""Bytes of each kind that a model takes while it runs: the formulas, one function each.

docs/memory.md states them in words. Pure arithmetic over a ModelConfig; knows nothing of limits.
"""

from __future__ import annotations

from typing import Literal, get_args

from edgeseek.architectures.spec import ModelConfig, MoE
from edgeseek.errors import UsageError
from edgeseek.memory.limits import MemoryLimit

#: How keys and values are stored; int8 halves them.
KvType = Literal["f16", "int8"]
KV_TYPES: tuple[KvType, ...] = get_args(KvType)
#: Dimensions of a head that share a scale in an int8 cache (native/include/edgeseek/kv_pool.h).
KV_GROUP = 32
#: Token positions in one KV block: the runtime's BLOCK_TOKENS, which may not be imported from here.
KV_BLOCK_TOKENS = 32
#: Most tokens of one step: the longest prefill chunk.
STEP_TOKENS = 512
#: Sequences that may share the pool of a single slot, each with a row of logits in a step.
STEP_SEQUENCES = 8
#: Rows of logits in a step that verifies proposed tokens: engine.speculative's MAX_ROWS.
VERIFIED_ROWS = 16

_MIB = 1 << 20
#: Private memory of interpreter, numpy, tokenizers and the core before a model is loaded.
_RUNTIME_BASE = 24 * _MIB
#: The tokenizer's tables, per entry of the vocabulary.
_RUNTIME_PER_VOCABULARY_ENTRY = 400
#: Pages of the interpreter and of shared libraries that such a process has mapped.
LIBRARY_BYTES = 24 * _MIB
#: Stacks and per-thread scratch of the compute pool.
THREAD_BYTES = 1 * _MIB
#: A board sold as 8 GB shows about 7.5 GB once firmware and display have taken theirs.
_LARGE_BOARD = 7_500_000_000
_LARGE_BOARD_RESERVE = 800 * _MIB
#: Part of a cgroup's limit that is left for what the kernel charges to it: page tables, sockets, dentries.
_GROUP_SHARE = 32


def kv_bytes_per_token(config: ModelConfig, kv: KvType = "f16") -> int:
    """Bytes of keys and values of one position: 2 planes, each head of each layer.

    f16: 2 bytes for each dimension. int8: 1 byte, and a scale of 2 bytes for each 32 dimensions begun.
    Latent attention has one plane of its latent vector and rotated key in each layer, f16 only: raises
    UsageError for another type.
    """
    if config.latent is not None:
        if kv != "f16":
            raise UsageError(
                f"{config.architecture} keeps latent vectors in its cache, which is f16 only; "
                f"leave out --kv {kv}"
            )
        return config.num_layers * 2 * config.latent.width
    head = 2 * config.head_dim if kv == "f16" else config.head_dim + 2 * -(-config.head_dim // KV_GROUP)
    return config.num_layers * config.num_kv_heads * 2 * head


def kv_blocks(context: int, slots: int) -> int:
    """Blocks that hold `slots` sequences of `context` tokens; a sequence never shares its last block."""
    return -(-context // KV_BLOCK_TOKENS) * slots


def work_bytes(config: ModelConfig, step_tokens: int = STEP_TOKENS) -> int:
    """Bytes of the core's activation buffers for a step of `step_tokens` tokens.

    They are those of `Runner::Buffers` in native/src/buffers.h. Per token, in fp32: the residual stream
    and its normed copy, q, k and v, the attention's output, the feed-forward's product, a cosine and a
    sine for each rotated pair; and the int8 copies of what linear layers read, with 6 fp32 figures for
    each group of 32. Latent attention has its own vectors in place of k and v, and for each head a query
    in the latent space and an int8 copy.
    """
    latent = config.latent
    q_width = config.num_heads * config.head_dim
    kv_widths = (
        2 * config.num_kv_heads * config.head_dim if latent is None else latent.width + latent.query_rank
    )
    normed = config.hidden_size if latent is None else max(config.hidden_size, latent.query_rank)
    hidden, attention, feed_forward = (
        _padded(width) for width in (normed, config.attention_width, config.intermediate_size)
    )
    fp32 = config.hidden_size + hidden + q_width + kv_widths + attention + feed_forward + config.rotary_dim
    int8 = max(hidden, attention) + feed_forward
    if latent is not None:
        fp32 += config.num_heads * latent.width
        int8 += config.num_heads * _padded(max(latent.rank, latent.plain_dim))
    return step_tokens * (4 * fp32 + _quantized_bytes(int8) + _expert_work_bytes(config.moe))


def _expert_work_bytes(moe: MoE | None) -> int:
    """Bytes per token of `MoeBuffers` in native/src/moe_buffers.h: scores, choice, and the inner products."""
    if moe is None:
        return 0
    inner = moe.experts_per_token * _padded(moe.intermediate_size) + _padded(moe.shared_size)
    scores = -(-moe.num_experts // 16) * 16
    return 4 * (scores + 2 * moe.experts_per_token + inner) + _quantized_bytes(inner)


def _quantized_bytes(width: int) -> int:
    """Bytes of `width` int8 values with 6 fp32 figures for each group of 32."""
    return width + width // 32 * 6 * 4


def _padded(width: int) -> int:
    """The next multiple of 32, the group that activations are quantized in."""
    return -(-width // 32) * 32


def logits_bytes(config: ModelConfig, rows: int) -> int:
    """Bytes of `rows` rows of fp32 logits."""
    return rows * config.vocab_size * 4


def runtime_bytes(config: ModelConfig, threads: int) -> int:
    """Private bytes of the process around the model: interpreter, tokenizer, thread stacks."""
    return _RUNTIME_BASE + config.vocab_size * _RUNTIME_PER_VOCABULARY_ENTRY + threads * THREAD_BYTES


def reserve_bytes(capacity: int) -> int:
    """What is left alone under a limit of `capacity` bytes: a tenth, and 800 MiB at least from 8 GB on."""
    tenth = capacity // 10
    return max(tenth, _LARGE_BOARD_RESERVE) if capacity >= _LARGE_BOARD else tenth


def reserve_of(limit: MemoryLimit) -> int:
    """What is left alone under `limit`: of the machine's memory `reserve_bytes`, of a group's a 32nd.

    A group's limit counts no other program than those inside, whose use is counted already; what is charged
    to it beside is the kernel's own memory for them.
    """
    return reserve_bytes(limit.capacity) if limit.machine else limit.capacity // _GROUP_SHARE
