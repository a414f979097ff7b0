"""The native backend: packages run by `edgeseek._core`.

Owns the mapping of package tensors to the core and the KV pool. Knows nothing of text or scheduling.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeseek import _core
from edgeseek.architectures.rope import inverse_frequencies, softmax_scale
from edgeseek.architectures.spec import LatentAttention, ModelConfig
from edgeseek.errors import DoesNotFitError, RuntimeFailure, UsageError
from edgeseek.memory.sizes import KvType, kv_bytes_per_token
from edgeseek.package import Package, PackedTensor
from edgeseek.runtime import pages
from edgeseek.runtime.backend import BLOCK_TOKENS, Capabilities, Sample, SampleRow, Slice
from edgeseek.runtime.drawing import draw
from edgeseek.runtime.preload import (
    Preload,
    check_preload,
    copy_to_huge_pages,
    lock_failure,
)

#: Tokens of the largest step; longer prompts are prefilled in chunks of it.
MAX_STEP_TOKENS = 512
#: An expert that ran within so many steps is in use.
_IDLE_STEPS = 64
_EXPERT = re.compile(r"layers\.(\d+)\..*\bexperts\.(\d+)\.")


class NativeBackend:
    """Runs a package on the CPU. Implements `runtime.backend.Backend`; not thread-safe.

    `blocks` KV blocks of 32 positions are allocated at once. `isa` forces an instruction set by name;
    None takes the fastest that the machine has. `preload` says how the weights come into memory, see
    `runtime.preload`. `kv` "int8" stores keys and values in half the memory. `cpus` are the processors
    that steps stay on, none for any. `context` is the most positions that a sequence will have, which
    fixes "dynamic" and "longrope" frequencies; None takes the model's own. Raises UsageError for an
    unknown `isa` or `preload` and a `kv` that the model's attention does not have, DoesNotFitError when the
    KV pool or a copy of the weights cannot be allocated, and RuntimeFailure for a package whose tensors
    contradict its config or where locking is not allowed.
    """

    def __init__(
        self,
        package: Package,
        *,
        blocks: int,
        threads: int,
        isa: str | None = None,
        max_step_tokens: int = MAX_STEP_TOKENS,
        preload: Preload = "populate",
        kv: KvType = "f16",
        cpus: Sequence[int] = (),
        context: int | None = None,
    ) -> None:
        config = package.config
        self._expert_data, self._lookup_data = _droppable(package, preload)
        self._kv_type: KvType = kv
        check_preload(preload)
        if isa is not None and isa not in _core.supported_isas():
            raise UsageError(
                f"instruction set {isa!r} is not available here; this machine and build have "
                f"{', '.join(_core.supported_isas())}"
            )
        self._config = config
        kv_bytes = blocks * BLOCK_TOKENS * kv_bytes_per_token(config, kv)
        try:
            tensors = copy_to_huge_pages(package.tensors) if preload == "copy" else package.tensors
            self._model = _build_model(config, tensors, config.max_context if context is None else context)
            self._pool = _build_pool(config, blocks, kv)
            self._threads = _core.ThreadPool(threads, list(cpus))
            self._runner = _core.Runner(self._model, self._pool, self._threads, isa, max_step_tokens)
        except ValueError as error:
            raise RuntimeFailure(f"the package {package.path} cannot be run: {error}") from error
        except RuntimeError as error:
            raise RuntimeFailure(f"{error}; use fewer with --threads or EDGESEEK_THREADS") from error
        except MemoryError as error:
            raise _refused(kv_bytes, blocks) from error
        if preload == "populate":
            # Else the first step takes a page fault for every 64 KiB of weights.
            Thread(target=self._model.populate, name="edgeseek-populate", daemon=True).start()
        elif preload == "lock" and (code := self._model.lock()):
            raise lock_failure(code, self._model.bytes_per_token)

    @property
    def config(self) -> ModelConfig:
        """See `Backend.config`."""
        return self._config

    @property
    def capabilities(self) -> Capabilities:
        """See `Backend.capabilities`."""
        return Capabilities(paged=True, mixed_batches=True, prefix_sharing=True, rollback=True)

    @property
    def num_blocks(self) -> int:
        """See `Backend.num_blocks`."""
        return self._pool.blocks

    @property
    def max_step_tokens(self) -> int:
        """The most tokens one `forward` takes."""
        return self._runner.max_tokens

    @property
    def isa(self) -> str:
        """Name of the instruction set in use."""
        return self._runner.isa

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one position."""
        return self._pool.block_bytes // BLOCK_TOKENS

    @property
    def kv_type(self) -> KvType:
        """How keys and values are stored."""
        return self._kv_type

    @property
    def threads(self) -> int:
        """Compute threads in use."""
        return self._threads.size

    @property
    def bytes_per_token(self) -> int:
        """Bytes of weights that decoding one token reads."""
        return self._model.bytes_per_token

    def forward(self, batch: Sequence[Slice]) -> npt.NDArray[np.float32]:
        """See `Backend.forward`."""
        return self.forward_with_taps(batch, ())[0]

    def forward_with_taps(
        self, batch: Sequence[Slice], taps: Sequence[str]
    ) -> tuple[npt.NDArray[np.float32], dict[str, npt.NDArray[np.float32]]]:
        """As `forward`, and copies out the named activations, each [tokens of the batch, width].

        Names are those of `tap_names`; "final_norm" has one row per logit row.
        """
        width = max((len(piece.block_table) for piece in batch), default=0)
        tables = np.zeros((len(batch), width), dtype=np.int32)
        tokens: list[int] = []
        logit_rows: list[int] = []
        for i, piece in enumerate(batch):
            tables[i, : len(piece.block_table)] = piece.block_table
            start = len(tokens)
            tokens.extend(piece.tokens)
            if piece.logits == "last":
                logit_rows.append(len(tokens) - 1)
            elif piece.logits == "all":
                logit_rows.extend(range(start, len(tokens)))
        try:
            return self._runner.forward(
                np.array(tokens, dtype=np.int32),
                np.array([len(piece.tokens) for piece in batch], dtype=np.int32),
                np.array([piece.past for piece in batch], dtype=np.int32),
                tables,
                np.array([len(piece.block_table) for piece in batch], dtype=np.int32),
                np.array(logit_rows, dtype=np.int32),
                list(taps),
            )
        except (ValueError, OverflowError) as error:
            raise RuntimeFailure(f"the step was refused: {error}") from error

    def tap_names(self) -> list[str]:
        """Activations that `forward_with_taps` can copy out."""
        return self._runner.tap_names()

    def sample(self, logits: npt.NDArray[np.float32], rows: Sequence[SampleRow]) -> list[Sample]:
        """See `Backend.sample`."""
        return [draw(logits[i], row) for i, row in enumerate(rows)]

    def counters(self) -> Mapping[str, int]:
        """See `Backend.counters`."""
        return self._runner.counters()

    def release_blocks(self, blocks: Sequence[int]) -> int:
        """See `GivesBack.release_blocks`. Raises RuntimeFailure for a block that there is not."""
        try:
            return self._pool.release(np.array(blocks, dtype=np.int32))
        except (ValueError, OverflowError) as error:
            raise RuntimeFailure(f"the blocks were not released: {error}") from error

    def page_out_weights(self) -> int:
        """See `GivesBack.page_out_weights`: experts that no token was routed to of late, and the embedding.

        The embedding is left where it is the head too, and everything where weights are locked or copied.
        """
        steps = self._runner.expert_steps()
        late = self._runner.counters()["steps"] - _IDLE_STEPS
        idle = [
            data
            for place, tensors in self._expert_data.items()
            if steps[place] <= max(late, 0)
            for data in tensors
        ]
        return sum(map(pages.page_out, idle + self._lookup_data))

    def close(self) -> None:
        """Free the KV pool, the buffers and the threads; calls after it raise AttributeError."""
        # The runner points into the other three, so it goes first.
        for part in ("_runner", "_threads", "_pool", "_model"):
            self.__dict__.pop(part, None)


def _build_model(config: ModelConfig, packed: Mapping[str, PackedTensor], context: int) -> _core.Model:
    tensors = []
    for name, tensor in packed.items():
        rows, columns = (*tensor.shape, 1)[:2]
        tensors.append((name, tensor.scheme, tensor.layout, rows, columns, tensor.data))
    return _core.Model(
        layers=config.num_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab=config.vocab_size,
        rms_eps=config.rms_eps,
        tied_embeddings=config.tied_embeddings,
        inverse_frequencies=inverse_frequencies(config.rope, config.rotary_dim, context).tolist(),
        rotary_scale=config.rope.attention_factor,
        windows=[config.window(i) for i in range(config.num_layers)],
        tensors=tensors,
        moe=None if config.moe is None else asdict(config.moe),
        latent=None if config.latent is None else _latent_fields(config, config.latent),
    )


def _latent_fields(config: ModelConfig, latent: LatentAttention) -> dict[str, Any]:
    return {**asdict(latent), "softmax_scale": softmax_scale(config.rope, config.head_dim)}


def _refused(kv_bytes: int, blocks: int) -> DoesNotFitError:
    """What to say when the KV pool or the buffers beside it could not be had."""
    from edgeseek.package.address_space import largest_mapping

    available = largest_mapping(kv_bytes)
    fitting = available // (kv_bytes // blocks) * BLOCK_TOKENS
    hint = f"a --context of {fitting} tokens or fewer" if fitting else "a smaller model"
    return DoesNotFitError(
        f"the system refused memory for the {kv_bytes:,} bytes of {blocks} KV blocks and the buffers beside "
        f"them; {available:,} bytes in one piece can be had: use {hint}, or raise ulimit -v or "
        "vm.overcommit_memory",
        needed=kv_bytes,
        available=available,
    )


def _droppable(package: Package, preload: Preload) -> tuple[dict[int, list[pages.Bytes]], list[pages.Bytes]]:
    """Tensors whose pages may go: of each expert, by layer × experts + expert, and of lookups."""
    experts: dict[int, list[pages.Bytes]] = defaultdict(list)
    lookups: list[pages.Bytes] = []
    if preload in ("copy", "lock"):
        return experts, lookups
    config = package.config
    for name, tensor in package.tensors.items():
        found = _EXPERT.match(name)
        if found is not None and config.moe is not None:
            experts[int(found[1]) * config.moe.num_experts + int(found[2])].append(tensor.data)
        elif name == "embed.weight" and not config.tied_embeddings:
            lookups.append(tensor.data)
    return experts, lookups


def _build_pool(config: ModelConfig, blocks: int, kv: KvType) -> _core.KvPool:
    if config.latent is not None:
        return _core.KvPool(config.num_layers, 1, config.latent.width, blocks, kv, latent=True)
    return _core.KvPool(config.num_layers, config.num_kv_heads, config.head_dim, blocks, kv)
