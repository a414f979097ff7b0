"""Blocks are handed out once, shared by count, and the books can be checked against the tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeseek.engine.block_manager import BlockManager, blocks_for
from edgeseek.errors import RuntimeFailure


def test_blocks_for_rounds_up_to_32_positions() -> None:
    assert [blocks_for(n) for n in (0, 1, 31, 32, 33, 64, 65)] == [0, 1, 1, 1, 2, 2, 3]


def test_every_block_is_handed_out_once_and_no_more_than_there_are() -> None:
    blocks = BlockManager(5)
    taken = blocks.allocate(3) + blocks.allocate(2)
    assert sorted(taken) == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeFailure, match="1 KV blocks are needed and 0 are free"):
        blocks.allocate(1)
    blocks.release(taken[:2])
    with pytest.raises(RuntimeFailure, match="3 KV blocks are needed and 2 are free"):
        blocks.allocate(3)
    assert blocks.available == 2


def test_a_shared_block_is_free_when_the_last_holder_lets_go() -> None:
    blocks = BlockManager(2)
    table = blocks.allocate(1)
    blocks.share(table)
    assert blocks.holders(table[0]) == 2
    blocks.release(table)
    assert blocks.available == 1
    blocks.release(table)
    assert blocks.available == 2


def test_releasing_or_sharing_a_free_block_is_refused() -> None:
    blocks = BlockManager(2)
    with pytest.raises(RuntimeFailure, match="KV block 1 is released twice"):
        blocks.release([1])
    with pytest.raises(RuntimeFailure, match="KV block 0 is free"):
        blocks.share([0])


def test_check_names_a_leaked_and_a_doubly_held_block() -> None:
    blocks = BlockManager(3)
    table = blocks.allocate(2)
    blocks.check([table])
    with pytest.raises(RuntimeFailure, match=f"KV block {table[1]} is in 0 tables and counted as in 1"):
        blocks.check([table[:1]])
    with pytest.raises(RuntimeFailure, match=f"KV block {table[0]} is in 2 tables and counted as in 1"):
        blocks.check([table, table[:1]])


@given(st.lists(st.tuples(st.sampled_from(["take", "share", "release"]), st.integers(0, 9)), max_size=60))
def test_any_order_of_taking_sharing_and_releasing_keeps_the_books(steps: list[tuple[str, int]]) -> None:
    blocks = BlockManager(7)
    tables: list[list[int]] = []
    for action, number in steps:
        if action == "take" and number <= blocks.available:
            tables.append(blocks.allocate(number))
        elif action == "share" and tables:
            shared = list(tables[number % len(tables)])
            blocks.share(shared)
            tables.append(shared)
        elif action == "release" and tables:
            blocks.release(tables.pop(number % len(tables)))
        blocks.check(tables)
    for table in tables:
        blocks.release(table)
    assert blocks.available == 7
