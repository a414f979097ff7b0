"""Which computed beginning a new sequence goes on from, and who owns the blocks then."""

from __future__ import annotations

import pytest

from edgeseek.engine.block_manager import BlockManager
from edgeseek.engine.retention import RetainedSequences
from edgeseek.runtime.backend import Capabilities


def room(*, rollback: bool = True, prefix_sharing: bool = True) -> tuple[BlockManager, RetainedSequences]:
    blocks = BlockManager(16)
    capabilities = Capabilities(
        paged=True, mixed_batches=True, prefix_sharing=prefix_sharing, rollback=rollback
    )
    return blocks, RetainedSequences(blocks, capabilities)


def keep(blocks: BlockManager, retained: RetainedSequences, tokens: list[int]) -> list[int]:
    table = blocks.allocate(-(-len(tokens) // 32))
    retained.keep(tokens, table)
    return table


def test_a_continuation_takes_the_whole_table_over() -> None:
    blocks, retained = room()
    table = keep(blocks, retained, list(range(70)))
    prefix = retained.claim([*range(70), 99, 98])
    assert (prefix.tokens, prefix.block_table) == (70, table)
    assert len(retained) == 0
    blocks.check([prefix.block_table])


def test_an_equal_prompt_computes_its_last_token_again() -> None:
    blocks, retained = room()
    table = keep(blocks, retained, list(range(64)))
    prefix = retained.claim(list(range(64)))
    assert (prefix.tokens, prefix.block_table) == (63, table)


def test_where_they_part_the_table_is_cut_and_the_rest_is_free() -> None:
    blocks, retained = room()
    table = keep(blocks, retained, list(range(100)))
    prefix = retained.claim([*range(60), 500, 501])
    assert (prefix.tokens, prefix.block_table) == (60, table[:2])
    assert blocks.available == 14
    blocks.check([prefix.block_table])


def test_of_a_short_common_beginning_only_full_blocks_are_shared_and_the_other_stays() -> None:
    blocks, retained = room()
    table = keep(blocks, retained, list(range(200)))
    prefix = retained.claim([*range(40), 900, 901])
    assert (prefix.tokens, prefix.block_table) == (32, table[:1])
    assert len(retained) == 1
    blocks.check([prefix.block_table, table])


def test_a_block_that_another_table_reads_is_not_cut_into() -> None:
    blocks, retained = room()
    table = keep(blocks, retained, list(range(64)))
    blocks.share(table)
    prefix = retained.claim([*range(40), 900])
    assert (prefix.tokens, prefix.block_table) == (32, table[:1])
    blocks.check([prefix.block_table, table])


def test_the_longest_match_wins_and_the_latest_of_equals() -> None:
    blocks, retained = room()
    keep(blocks, retained, list(range(40)))
    longest = keep(blocks, retained, list(range(50)))
    keep(blocks, retained, [7] * 50)
    assert retained.claim([*range(50), 1]).block_table == longest


def test_nothing_in_common_claims_nothing() -> None:
    blocks, retained = room()
    keep(blocks, retained, [1, 2, 3])
    assert retained.claim([2, 2, 3]).tokens == 0
    assert retained.claim([1]).tokens == 0
    assert len(retained) == 1


@pytest.mark.parametrize(
    ("rollback", "prefix_sharing", "expected"), [(False, False, 0), (False, True, 32), (True, False, 60)]
)
def test_a_backend_is_asked_for_no_more_than_it_can(
    rollback: bool, prefix_sharing: bool, expected: int
) -> None:
    blocks, retained = room(rollback=rollback, prefix_sharing=prefix_sharing)
    keep(blocks, retained, list(range(100)))
    assert retained.claim([*range(60), 500, 501]).tokens == expected


def test_without_rollback_a_pure_continuation_is_still_taken_over() -> None:
    blocks, retained = room(rollback=False, prefix_sharing=False)
    keep(blocks, retained, list(range(50)))
    assert retained.claim([*range(50), 1, 2]).tokens == 50


def test_the_oldest_is_evicted_first() -> None:
    blocks, retained = room()
    keep(blocks, retained, [1] * 10)
    keep(blocks, retained, [2] * 10)
    retained.evict_oldest()
    assert retained.claim([1] * 11).tokens == 0
    assert retained.claim([2] * 11).tokens == 10
