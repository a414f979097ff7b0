"""What a model will take, before anything is allocated: bytes by kind, KV blocks, the context.

Pure arithmetic over a ModelConfig and the limits it is given; reads no files and allocates nothing.
Knows nothing of engine, server or command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgeseek.architectures.spec import ModelConfig, MoE
from edgeseek.errors import ContextTooLongError, DoesNotFitError, UsageError
from edgeseek.memory.limits import MemoryLimit, MemoryLimits

#: How keys and values are stored; int8 halves them.
KvType = Literal["f16", "int8"]
#: Dimensions of a head that share a scale in an int8 cache (native/include/edgeseek/kv_pool.h).
KV_GROUP = 32
#: Token positions in one KV block: the runtime's BLOCK_TOKENS, which may not be imported from here.
KV_BLOCK_TOKENS = 32
#: Context where neither the caller asks for one nor the model or the memory is smaller.
DEFAULT_CONTEXT = 8192
#: Most tokens of one step: the longest prefill chunk.
STEP_TOKENS = 512
#: Sequences that may share the pool of a single slot, each with a row of logits in a step.
STEP_SEQUENCES = 8

_MIB = 1 << 20
#: Interpreter, numpy, tokenizers and the core, resident before a model is loaded.
_RUNTIME_BASE = 48 * _MIB
#: The tokenizer's tables, per entry of the vocabulary.
_RUNTIME_PER_VOCABULARY_ENTRY = 400
#: Stacks and per-thread scratch of the compute pool.
THREAD_BYTES = 1 * _MIB
#: A board sold as 8 GB shows about 7.5 GB once firmware and display have taken theirs.
_LARGE_BOARD = 7_500_000_000
_LARGE_BOARD_RESERVE = 800 * _MIB


@dataclass(frozen=True)
class MemoryPlan:
    """The plan of one loaded model; all sizes in bytes.

    `blocks` × KV_BLOCK_TOKENS positions are allocated, enough for `slots` sequences of `context` tokens
    at once. `weights` is file-backed and shared between processes; the rest is this process's own.
    """

    context: int
    #: Why the context is what it is: "asked for", "the default", "the model's" or "what fits".
    context_reason: str
    slots: int
    blocks: int
    weights: int
    kv: int
    work: int
    logits: int
    runtime: int
    #: Left to the rest of the machine; already taken from `available`.
    reserve: int
    #: What the plan may take: the least limit less its reserve, or the budget.
    available: int
    #: Name of the limit behind `available`.
    decided_by: str
    #: Of the experts' weights, what does not fit: it is read from the disk when a token is routed there, and
    #: dropped again by the kernel. Not in `weights`.
    experts_on_disk: int = 0

    @property
    def needed(self) -> int:
        """Sum of all that the model takes."""
        return self.weights + self.kv + self.work + self.logits + self.runtime

    @property
    def summary(self) -> str:
        """One line for the terminal: the context, why, and the bytes behind it."""
        kinds = f"weights {_mb(self.weights)}, KV {_mb(self.kv)}"
        if self.experts_on_disk:
            kinds += f"; {_mb(self.experts_on_disk)} of experts are read from the disk when needed"
        return (
            f"context {self.context} ({self.context_reason}); needs {_mb(self.needed)} ({kinds}) "
            f"of {_mb(self.available)} available by {self.decided_by}"
        )


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
    """Bytes of the process around the model: interpreter, libraries, tokenizer, thread stacks."""
    return _RUNTIME_BASE + config.vocab_size * _RUNTIME_PER_VOCABULARY_ENTRY + threads * THREAD_BYTES


def reserve_bytes(capacity: int) -> int:
    """What is left alone under a limit of `capacity` bytes: a tenth, and 800 MiB at least from 8 GB on."""
    tenth = capacity // 10
    return max(tenth, _LARGE_BOARD_RESERVE) if capacity >= _LARGE_BOARD else tenth


def plan(
    config: ModelConfig,
    weight_bytes: int,
    *,
    expert_bytes: int = 0,
    limits: MemoryLimits,
    context: int | None = None,
    slots: int = 1,
    threads: int = 1,
    step_tokens: int = STEP_TOKENS,
    logit_rows: int | None = None,
    budget: int | None = None,
    kv: KvType = "f16",
    kv_token_bytes: int | None = None,
) -> MemoryPlan:
    """Plan the memory of a model whose package holds `weight_bytes` of weights.

    `context` is in tokens; None takes the least of the model's own, DEFAULT_CONTEXT and what fits.
    `slots` is how many such contexts the pool holds. `logit_rows` is the most rows of logits in a step
    (default: one per slot, and STEP_SEQUENCES at least). `budget` caps the bytes; it takes no reserve,
    since whoever states it has chosen it. `kv` is how keys and values are stored, `kv_token_bytes` what
    those of a token take where a backend stores them its own way. `expert_bytes` of the weights belong to
    experts and may stay on the disk where memory is short, all but as many as one token needs.

    Raises UsageError for a number that makes no sense, ContextTooLongError, and DoesNotFitError with the
    figures where the model or the asked context does not fit.
    """
    _check_options(config, context, slots, budget)
    available, reserve, decided_by = _available(limits, budget)
    rows = max(slots, STEP_SEQUENCES) if logit_rows is None else logit_rows
    logits = logits_bytes(config, rows)
    work = work_bytes(config, step_tokens)
    runtime = runtime_bytes(config, threads)
    token_bytes = kv_bytes_per_token(config, kv) if kv_token_bytes is None else kv_token_bytes
    block_bytes = KV_BLOCK_TOKENS * token_bytes
    fixed = weight_bytes + work + logits + runtime
    wanted, reason = _wanted_context(config, context)
    spare = _idle_expert_bytes(config, expert_bytes)
    on_disk = min(spare, max(0, fixed + kv_blocks(wanted, slots) * block_bytes - available))
    fixed -= on_disk
    fitting = (available - fixed) // (block_bytes * slots) * KV_BLOCK_TOKENS
    if fitting < wanted:
        if context is not None or fitting <= 0:
            needed = fixed + kv_blocks(wanted if context else 1, slots) * block_bytes
            weights = weight_bytes - on_disk
            raise _does_not_fit(needed, available, decided_by, weights, wanted, fitting, slots)
        wanted, reason = fitting, "what fits"
    blocks = kv_blocks(wanted, slots)
    return MemoryPlan(
        context=wanted,
        context_reason=reason,
        slots=slots,
        blocks=blocks,
        weights=weight_bytes - on_disk,
        kv=blocks * block_bytes,
        work=work,
        logits=logits,
        runtime=runtime,
        reserve=reserve,
        available=available,
        decided_by=decided_by,
        experts_on_disk=on_disk,
    )


def _idle_expert_bytes(config: ModelConfig, expert_bytes: int) -> int:
    """Of the experts' bytes, those that a token does not touch."""
    if config.moe is None:
        return 0
    return expert_bytes - expert_bytes * config.moe.experts_per_token // config.moe.num_experts


def largest_context(config: ModelConfig, planned: MemoryPlan) -> int:
    """Tokens of the largest single context that fitted when `planned` was made, beside all but its KV."""
    room = planned.available - (planned.needed - planned.kv)
    blocks = room // (planned.kv // planned.blocks)
    return max(0, min(config.max_context, blocks * KV_BLOCK_TOKENS))


def _check_options(config: ModelConfig, context: int | None, slots: int, budget: int | None) -> None:
    if slots < 1:
        raise UsageError(f"{slots} sequences at once were asked for; give 1 or more slots")
    if budget is not None and budget < 1:
        raise UsageError(f"the memory budget is {budget} bytes; give a positive number or none")
    if context is not None and context < 1:
        raise UsageError(f"a context of {context} tokens was asked for; give 1 or more")
    if context is not None and context > config.max_context:
        raise ContextTooLongError(context, config.max_context)


def _available(limits: MemoryLimits, budget: int | None) -> tuple[int, int, str]:
    """Bytes the plan may take, the reserve taken from them, and the name of what decides."""

    def left(limit: MemoryLimit) -> int:
        return max(0, limit.available - reserve_bytes(limit.capacity))

    deciding = min(limits.limits, key=left)
    if budget is not None and budget < left(deciding):
        return budget, 0, "the budget"
    return left(deciding), reserve_bytes(deciding.capacity), deciding.name


def _wanted_context(config: ModelConfig, context: int | None) -> tuple[int, str]:
    if context is not None:
        return context, "asked for"
    if config.max_context <= DEFAULT_CONTEXT:
        return config.max_context, "the model's"
    return DEFAULT_CONTEXT, "the default"


def _does_not_fit(
    needed: int, available: int, decided_by: str, weights: int, context: int, fitting: int, slots: int
) -> DoesNotFitError:
    streams = "" if slots == 1 else f" for {slots} sequences at once"
    if fitting > 0:
        text = (
            f"a context of {context} tokens{streams} needs {_mb(needed)} and {_mb(available)} are available "
            f"by {decided_by}; the largest context that fits is {fitting}"
        )
    else:
        text = (
            f"the model needs {_mb(needed)} ({_mb(weights)} of weights){streams} and {_mb(available)} are "
            f"available by {decided_by}: {_mb(needed - available)} are lacking; use a smaller model or "
            f"--scheme, or free memory"
        )
    return DoesNotFitError(text, needed=needed, available=available)


def _mb(size: int) -> str:
    """Bytes as decimal megabytes, the unit of model file sizes; thousands separated."""
    return f"{-(-size // 1_000_000):,} MB"
