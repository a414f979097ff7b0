"""A backend without a model, whose logits depend on every token before them through the KV blocks.

A position's "KV" is a hash of its token and position, written where the block table says; its logits come
from the sum of all hashes read back through the table. A wrong table, position or a block that somebody
else has overwritten gives other logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edgeseek.architectures.spec import ModelConfig
from edgeseek.errors import RuntimeFailure
from edgeseek.runtime.backend import BLOCK_TOKENS, Capabilities, Sample, SampleRow, Slice
from edgeseek.tokenizer.stream import StreamDecoder
from tests.unit.engine import reference_sampler

Hashes = npt.NDArray[np.uint64]
VOCAB = 61
EOS = 60


def mixed(x: Hashes) -> Hashes:
    """SplitMix64's finalizer on each element."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def config(context: int = 4096, vocab: int = VOCAB) -> ModelConfig:
    return ModelConfig(
        architecture="fake",
        vocab_size=vocab,
        hidden_size=8,
        intermediate_size=8,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        max_context=context,
        rms_eps=1e-6,
        eos_token_ids=(EOS,),
    )


class FakeBackend:
    """Implements runtime.backend.Backend; `batches` records the slices of every forward."""

    def __init__(
        self,
        num_blocks: int = 64,
        *,
        vocab: int = VOCAB,
        mixed_batches: bool = True,
        prefix_sharing: bool = True,
        rollback: bool = True,
    ) -> None:
        self.config = config(vocab=vocab)
        self.capabilities = Capabilities(
            paged=True, mixed_batches=mixed_batches, prefix_sharing=prefix_sharing, rollback=rollback
        )
        self.num_blocks = num_blocks
        self.batches: list[list[Slice]] = []
        self._pool: Hashes = np.arange(num_blocks * BLOCK_TOKENS, dtype=np.uint64) + np.uint64(2**63)

    def forward(self, batch: Sequence[Slice]) -> npt.NDArray[np.float32]:
        self.batches.append(list(batch))
        rows = [self._run(part) for part in batch]
        return np.concatenate([*rows, np.zeros((0, self.config.vocab_size), np.float32)])

    def _run(self, part: Slice) -> npt.NDArray[np.float32]:
        end = part.past + len(part.tokens)
        if not part.tokens or end > len(part.block_table) * BLOCK_TOKENS:
            raise RuntimeFailure(f"{end} positions in {len(part.block_table)} blocks")
        table = np.array(part.block_table, np.int64)
        places = (table[:, None] * BLOCK_TOKENS + np.arange(BLOCK_TOKENS)).reshape(-1)[:end]
        tokens = np.array(part.tokens, np.uint64)
        positions = np.arange(part.past, end, dtype=np.uint64)
        self._pool[places[part.past :]] = mixed(tokens * np.uint64(1 << 32) + positions + np.uint64(1))
        states = np.cumsum(self._pool[places], dtype=np.uint64)[part.past :]
        wanted = {"none": states[:0], "last": states[-1:], "all": states}[part.logits]
        return self._logits(wanted)

    def _logits(self, states: Hashes) -> npt.NDArray[np.float32]:
        ids = np.arange(self.config.vocab_size, dtype=np.uint64)
        bits = mixed(states[:, None] + mixed(ids + np.uint64(7))[None, :])
        return ((bits >> np.uint64(40)).astype(np.float64) / 2.0**21 - 4.0).astype(np.float32)

    def sample(self, logits: npt.NDArray[np.float32], rows: Sequence[SampleRow]) -> list[Sample]:
        return [reference_sampler.sample(logits[i], row) for i, row in enumerate(rows)]

    def counters(self) -> Mapping[str, int]:
        return {"steps": len(self.batches)}

    def close(self) -> None:
        self._pool = np.zeros(0, np.uint64)


class FakeTokenizer:
    """Token i is the i-th of `pieces`, or a letter followed by its number."""

    def __init__(self, pieces: Sequence[bytes] = ()) -> None:
        self._pieces = pieces

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < len(self._pieces):
            return self._pieces[token_id]
        return b"t%d " % token_id

    def stream(self) -> StreamDecoder:
        return StreamDecoder(self.token_bytes)


class ScriptedBackend(FakeBackend):
    """Draws the tokens of `script` at output positions counted from the end of a one-token prompt."""

    def __init__(self, script: Sequence[int], *, vocab: int = VOCAB) -> None:
        super().__init__(vocab=vocab)
        self._script = script

    def sample(self, logits: npt.NDArray[np.float32], rows: Sequence[SampleRow]) -> list[Sample]:
        return [Sample(self._script[row.position - 1], 0.0) for row in rows]
