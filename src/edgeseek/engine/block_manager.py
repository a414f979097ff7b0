"""Who holds which KV blocks: allocation, sharing and release of the pool's block ids.

Knows nothing of what the blocks contain. A block may be in several tables when they share a full prefix;
it is free again when the last of them lets go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from edgeseek.errors import RuntimeFailure
from edgeseek.runtime.backend import BLOCK_TOKENS


def blocks_for(tokens: int) -> int:
    """Blocks that hold `tokens` positions."""
    return -(-tokens // BLOCK_TOKENS)


class BlockManager:
    """Hands out the ids 0 .. num_blocks - 1."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        # A stack: what was freed last is warm in the cache and goes out first.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._holders = [0] * num_blocks

    @property
    def available(self) -> int:
        """Blocks nobody holds."""
        return len(self._free)

    def free_blocks(self) -> tuple[int, ...]:
        """The blocks that nobody holds."""
        return tuple(self._free)

    def holders(self, block: int) -> int:
        """Tables that hold `block`; one that is about to be written has exactly one."""
        return self._holders[block]

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks; raises RuntimeFailure, and takes none, if there are fewer."""
        if count > len(self._free):
            raise RuntimeFailure(f"{count} KV blocks are needed and {len(self._free)} are free")
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
        return taken

    def share(self, blocks: Sequence[int]) -> None:
        """Hold blocks that another table holds already."""
        for block in blocks:
            if self._holders[block] == 0:
                raise RuntimeFailure(f"KV block {block} is free and cannot be shared")
        for block in blocks:
            self._holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Let go of blocks; those without another holder become free."""
        for block in blocks:
            if self._holders[block] == 0:
                raise RuntimeFailure(f"KV block {block} is released twice")
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free.append(block)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Compare the books with the tables that exist; raises RuntimeFailure naming what differs."""
        held = Counter(block for table in tables for block in table)
        free = Counter(self._free)
        for block in range(self.num_blocks):
            if held[block] != self._holders[block]:
                raise RuntimeFailure(
                    f"KV block {block} is in {held[block]} tables and counted as in {self._holders[block]}"
                )
            if free[block] != (1 if held[block] == 0 else 0):
                raise RuntimeFailure(
                    f"KV block {block} is in {held[block]} tables and {free[block]} times in the free list"
                )
