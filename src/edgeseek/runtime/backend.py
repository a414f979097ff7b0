"""The contract between the engine and whatever executes a model.

Owns the vocabulary of a step (which tokens, at which positions, in which KV blocks). Knows nothing
of text, sampling policy or scheduling. The engine asks for `capabilities`; it does not assume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from edgeseek.architectures.spec import ModelConfig

#: Token positions held by one KV block.
BLOCK_TOKENS = 32

LogitRows = Literal["none", "last", "all"]


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do.

    paged: KV lives in blocks named by a table; without it a sequence's KV is named by its table's first
    block, and the others only count what is in use. mixed_batches: prefill chunks and decodes may share one
    forward.
    prefix_sharing: two tables may name the same full block. rollback: a sequence may be cut back to fewer
    positions and go on.
    """

    paged: bool
    mixed_batches: bool
    prefix_sharing: bool
    rollback: bool


@dataclass(frozen=True)
class Slice:
    """The part of one sequence that a step processes.

    `tokens` are at positions past, past + 1, …; `block_table[i]` is the pool block of positions
    [32 i, 32 i + 32) and covers at least past + len(tokens) positions.
    """

    tokens: Sequence[int]
    past: int
    block_table: Sequence[int]
    logits: LogitRows = "last"


@dataclass(frozen=True)
class SampleRow:
    """Everything a draw depends on besides the logits; see `engine.sampler` for the policy."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    #: Distinct ids of prompt and output so far (repetition penalty).
    seen_ids: npt.NDArray[np.int32]
    #: Distinct ids of the output so far and how often each occurred (presence, frequency).
    output_ids: npt.NDArray[np.int32]
    output_counts: npt.NDArray[np.int32]
    bias_ids: npt.NDArray[np.int32]
    bias_values: npt.NDArray[np.float32]
    seed: int
    #: Position of the token being drawn, counted from the sequence's start.
    position: int
    #: Number of best alternatives to report, 0 for none; -1 skips the chosen token's logprob too.
    top_logprobs: int = -1


@dataclass(frozen=True)
class Sample:
    """One drawn token; logprobs are natural, of the untempered, unpenalized distribution."""

    token: int
    logprob: float
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()


@runtime_checkable
class GivesBack(Protocol):
    """A backend that can give memory back while it goes on working; both return the bytes that went."""

    def release_blocks(self, blocks: Sequence[int]) -> int:
        """Give back the pages of KV blocks that hold nothing that is still wanted."""
        ...

    def page_out_weights(self) -> int:
        """Drop the pages of weights that steps do not need, or not lately; use reads them again."""
        ...


class Backend(Protocol):
    """Executes a model and owns its KV cache. Not thread-safe: one engine thread calls it."""

    @property
    def config(self) -> ModelConfig:
        """Hyper-parameters of the model it runs."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the engine may ask of it."""
        ...

    @property
    def num_blocks(self) -> int:
        """KV blocks in the pool, each of BLOCK_TOKENS positions."""
        ...

    def forward(self, batch: Sequence[Slice]) -> npt.NDArray[np.float32]:
        """Run one step and write the slices' keys and values into their blocks.

        Returns logits [rows, vocab_size], rows in batch order: one for a slice with "last", one per
        token with "all", none with "none". Raises RuntimeFailure on a bad table or token id.
        """
        ...

    def sample(self, logits: npt.NDArray[np.float32], rows: Sequence[SampleRow]) -> list[Sample]:
        """Draw one token for each of the rows of `logits` ([len(rows), vocab_size])."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Monotonic counters (steps, tokens, nanoseconds by phase) for timings and metrics."""
        ...

    def close(self) -> None:
        """Free what it holds; nothing may be called afterwards."""
        ...
