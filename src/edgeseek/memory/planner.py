"""What a model will take, before anything is allocated: bytes by kind, KV blocks, the context.

Pure arithmetic over a ModelConfig and the limits it is given; reads no files and allocates nothing.
Knows nothing of engine, server or command line.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgeseek.architectures.spec import ModelConfig
from edgeseek.errors import ContextTooLongError, DoesNotFitError, UsageError
from edgeseek.memory.limits import MemoryLimit, MemoryLimits
from edgeseek.memory.sizes import (
    KV_BLOCK_TOKENS,
    LIBRARY_BYTES,
    STEP_SEQUENCES,
    STEP_TOKENS,
    THREAD_BYTES,
    KvType,
    kv_blocks,
    kv_bytes_per_token,
    logits_bytes,
    reserve_bytes,
    reserve_of,
    runtime_bytes,
    work_bytes,
)

__all__ = [
    "DEFAULT_CONTEXT",
    "KV_BLOCK_TOKENS",
    "STEP_SEQUENCES",
    "STEP_TOKENS",
    "THREAD_BYTES",
    "KvType",
    "MemoryPlan",
    "available",
    "kv_blocks",
    "kv_bytes_per_token",
    "largest_context",
    "logits_bytes",
    "plan",
    "reserve_bytes",
    "reserve_of",
    "runtime_bytes",
    "work_bytes",
]

#: Context where neither the caller asks for one nor the model or the memory is smaller.
DEFAULT_CONTEXT = 8192


@dataclass(frozen=True)
class MemoryPlan:
    """The plan of one loaded model; all sizes in bytes.

    `blocks` × KV_BLOCK_TOKENS positions are allocated, enough for `slots` sequences of `context` tokens
    at once. `weights` and `libraries` are pages of files, which processes share and the kernel may drop and
    read again; the rest is this process's own.
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
    #: Pages of the interpreter and of shared libraries.
    libraries: int = 0
    #: Whether the weights are copied to memory of this process (`--preload copy`).
    weights_copied: bool = False
    kv_type: KvType = "f16"
    #: Bytes of keys and values of one position.
    kv_token_bytes: int = 0

    @property
    def needed(self) -> int:
        """Sum of all that the model takes."""
        return self.weights + self.kv + self.work + self.logits + self.runtime + self.libraries

    @property
    def anonymous(self) -> int:
        """Of `needed`, the private memory: what the kernel can only swap."""
        copied = self.weights if self.weights_copied else 0
        return self.kv + self.work + self.logits + self.runtime + copied

    @property
    def file_backed(self) -> int:
        """Of `needed`, the pages of files: what the kernel can drop and read again."""
        return self.needed - self.anonymous

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
    copied: bool = False,
    extra: int = 0,
) -> MemoryPlan:
    """Plan the memory of a model whose package holds `weight_bytes` of weights.

    `context` is in tokens; None takes the least of the model's own, DEFAULT_CONTEXT and what fits.
    `slots` is how many such contexts the pool holds. `logit_rows` is the most rows of logits in a step
    (default: one per slot, and STEP_SEQUENCES at least). `budget` caps the bytes; it takes no reserve,
    since whoever states it has chosen it. `kv` is how keys and values are stored, `kv_token_bytes` what
    those of a token take where a backend stores them its own way. `expert_bytes` of the weights belong to
    experts and may stay on the disk where memory is short, all but as many as one token needs. `copied`
    weights are private memory. `extra` is what else the process holds, a server's modules say.

    Raises UsageError for a number that makes no sense, ContextTooLongError, and DoesNotFitError with the
    figures where the model or the asked context does not fit.
    """
    _check_options(config, context, slots, budget)
    rows = max(slots, STEP_SEQUENCES) if logit_rows is None else logit_rows
    logits = logits_bytes(config, rows)
    work = work_bytes(config, step_tokens)
    runtime = runtime_bytes(config, threads) + extra
    token_bytes = kv_bytes_per_token(config, kv) if kv_token_bytes is None else kv_token_bytes
    block_bytes = KV_BLOCK_TOKENS * token_bytes
    room, reserve, decided_by = available(limits, budget, runtime)
    fixed = weight_bytes + work + logits + runtime + LIBRARY_BYTES
    wanted, reason = _wanted_context(config, context)
    spare = _idle_expert_bytes(config, expert_bytes)
    on_disk = min(spare, max(0, fixed + kv_blocks(wanted, slots) * block_bytes - room))
    fixed -= on_disk
    fitting = (room - fixed) // (block_bytes * slots) * KV_BLOCK_TOKENS
    if fitting < wanted:
        if context is not None or fitting <= 0:
            needed = fixed + kv_blocks(wanted if context else 1, slots) * block_bytes
            weights = weight_bytes - on_disk
            raise _does_not_fit(needed, room, decided_by, weights, wanted, fitting, slots)
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
        available=room,
        decided_by=decided_by,
        experts_on_disk=on_disk,
        libraries=LIBRARY_BYTES,
        weights_copied=copied,
        kv_type=kv,
        kv_token_bytes=token_bytes,
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


def available(limits: MemoryLimits, budget: int | None, runtime: int) -> tuple[int, int, str]:
    """Bytes the plan may take, the reserve taken from them, and the name of what decides.

    What this process holds already is part of `runtime` and LIBRARY_BYTES, and of every limit's use.
    """
    held = min(limits.held, runtime) + min(limits.mapped, LIBRARY_BYTES)

    def left(limit: MemoryLimit) -> int:
        return max(0, limit.available + held - reserve_of(limit))

    deciding = min(limits.limits, key=left)
    if budget is not None and budget < left(deciding):
        return budget, 0, "the budget"
    return left(deciding), reserve_of(deciding), deciding.name


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
