"""Finished sequences whose KV is kept until somebody needs the blocks.

A request whose tokens begin like a retained sequence does not compute that part again: the next turn of
a chat prefills only what is new. Knows nothing of who runs; the scheduler decides when to evict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeseek.engine.block_manager import BlockManager, blocks_for
from edgeseek.runtime.backend import BLOCK_TOKENS, Capabilities


@dataclass(eq=False)
class Retained:
    """The computed tokens [n] of a finished sequence and the blocks that hold them."""

    tokens: npt.NDArray[np.int32]
    block_table: list[int]
    salt: bytes = b""


@dataclass(frozen=True)
class Prefix:
    """A computed beginning that a new sequence may go on from; its holder owns the blocks."""

    tokens: int
    block_table: list[int]


class RetainedSequences:
    """Least recently finished first; that is the order of eviction."""

    def __init__(self, blocks: BlockManager, capabilities: Capabilities) -> None:
        self._blocks = blocks
        self._capabilities = capabilities
        self._entries: list[Retained] = []

    def __len__(self) -> int:
        return len(self._entries)

    def tables(self) -> Iterator[Sequence[int]]:
        """The block tables it holds, for `BlockManager.check`."""
        return (entry.block_table for entry in self._entries)

    def keep(self, tokens: Sequence[int], block_table: list[int], salt: bytes = b"") -> None:
        """Take over the blocks of `tokens`, all of which are computed; surplus blocks are released."""
        needed = blocks_for(len(tokens))
        self._blocks.release(block_table[needed:])
        self._entries.append(Retained(np.array(tokens, np.int32), block_table[:needed], salt))

    def evict_oldest(self) -> None:
        """Release the blocks of the sequence that finished longest ago."""
        self._blocks.release(self._entries.pop(0).block_table)

    def claim(self, tokens: Sequence[int], salt: bytes = b"") -> Prefix:
        """The longest computed beginning of `tokens`, short of its last (whose logits are needed).

        Only what was kept with the same `salt` is looked at.

        A retained sequence that is mostly contained in `tokens` is taken over and cut where they part;
        of one that only begins alike (two chats with one system prompt) the full blocks are shared and
        it stays.
        """
        wanted = np.array(tokens[:-1], np.int32)
        best, common = None, 0
        for entry in reversed(self._entries):
            if entry.salt != salt:
                continue
            length = _common(entry.tokens, wanted)
            if length > common:
                best, common = entry, length
        if best is None:
            return Prefix(0, [])
        may_take = self._capabilities.rollback or common == len(best.tokens)
        if may_take and (2 * common >= len(best.tokens) or not self._capabilities.prefix_sharing):
            return self._take(best, common)
        return self._share(best, common)

    def _take(self, entry: Retained, common: int) -> Prefix:
        self._entries.remove(entry)
        last = blocks_for(common) - 1
        if common % BLOCK_TOKENS and self._blocks.holders(entry.block_table[last]) > 1:
            # The block goes on differently here, and somebody else reads it: leave it to them.
            common = last * BLOCK_TOKENS
        needed = blocks_for(common)
        self._blocks.release(entry.block_table[needed:])
        return Prefix(common, entry.block_table[:needed])

    def _share(self, entry: Retained, common: int) -> Prefix:
        full = common // BLOCK_TOKENS if self._capabilities.prefix_sharing else 0
        table = entry.block_table[:full]
        self._blocks.share(table)
        return Prefix(full * BLOCK_TOKENS, list(table))


def _common(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> int:
    """Length of the longest common beginning."""
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(differs.argmax()) if differs.any() else length
