"""Loops, their nesting and their multiply-accumulates are found in what objdump prints."""

from __future__ import annotations

import pytest

from tools.count_instructions import (
    ROW_MACS,
    SETS,
    Count,
    kernel_counts,
    own_table,
    peer_table,
    replace_section,
)
from tools.loops import find_loops, parse
from tools.peer_loops import PeerLoop, peer_loop

NESTED = """
0000000000000000 <twice>:
   0:	mov	x1, #0x4                   	// #4
   4:	ldr	q0, [x0], #16
   8:	mov	x2, #0x2                   	// #2
   c:	sdot	v1.4s, v0.16b, v2.4b[0]
  10:	subs	x2, x2, #0x1
  14:	b.ne	c <twice+0xc>  // b.any
  18:	cbz	x3, 20 <twice+0x20>
  1c:	add	x4, x4, #0x1
  20:	subs	x1, x1, #0x1
  24:	b.ne	4 <twice+0x4>  // b.any
  28:	ret
"""

X86 = """
0000000000000000 <sum>:
   0:	xor    %eax,%eax
   2:	vpdpbusd (%rdi),%zmm1,%zmm0
   8:	add    $0x40,%rdi
   c:	cmp    %rsi,%rdi
   f:	jne    2 <sum+0x2>
  11:	jmp    30 <other>
"""


def kernel(body: list[str], name: str, address: int = 0) -> str:
    """A function that is one loop over `body`."""
    lines = [f"{address:016x} <{name}>:"]
    lines += [f"  {address + 4 * i:x}:\t{text}" for i, text in enumerate(body)]
    end = address + 4 * len(body)
    return "\n".join([*lines, f"  {end:x}:\tb.ne\t{address:x} <{name}>", f"  {end + 4:x}:\tret", ""])


def rows_of(count: int, extra: list[str], group: str = "PackedGroup", scheme: int = 3) -> str:
    name = (
        f"void edgeseek::(anonymous namespace)::run_rows<{count}, {group}<(edgeseek::Scheme){scheme}> >(int)"
    )
    return kernel(["sdot\tv0.4s, v1.16b, v2.4b[0]"] * (32 * count) + extra, name)


def test_nested_loops_and_their_own_instructions() -> None:
    inner, outer = find_loops(parse(NESTED)["twice"])
    assert [i.address for i in inner.body] == [0xC, 0x10, 0x14]
    assert [i.address for i in outer.own()] == [0x4, 0x8, 0x18, 0x1C, 0x20, 0x24]
    assert outer.inner == [inner]
    assert (inner.depth(), outer.depth()) == (0, 1)


def test_a_trace_repeats_inner_loops() -> None:
    _, outer = find_loops(parse(NESTED)["twice"])
    assert [i.mnemonic for i in outer.trace((2,))] == [
        "ldr", "mov", "sdot", "subs", "b.ne", "sdot", "subs", "b.ne", "cbz", "add", "subs", "b.ne",
    ]  # fmt: skip


def test_instructions_are_text_for_an_assembler() -> None:
    inner, outer = find_loops(parse(NESTED)["twice"])
    assert inner.body[-1].text == "b.ne .Lout"
    assert outer.body[1].text == "mov x2, #0x2"
    assert [i.text for i in outer.own() if i.mnemonic == "cbz"] == ["cbz x3, .Lout"]


def test_x86_loops_end_at_their_jump() -> None:
    (loop,) = find_loops(parse(X86)["sum"])
    assert [i.mnemonic for i in loop.body] == ["vpdpbusd", "add", "cmp", "jne"]
    assert loop.body[-1].text == "jne .Lout"


def test_rows_and_way_of_reading_follow_from_the_instructions() -> None:
    packed = parse(rows_of(1, ["fcvtl\tv3.4s, v3.4h", "prfm\tpldl1keep, [x1]"]))
    unpacked = parse(rows_of(4, ["fmla\tv4.4s, v5.4s, v6.4s"], "UnpackedGroup"))
    assert kernel_counts("neondot", packed | unpacked, None) == [
        Count("neondot", "q4", 1, "packed", 35, ROW_MACS),
        Count("neondot", "q4", 4, "unpacked", 130, 4 * ROW_MACS),
    ]


def test_a_block_of_two_level_scales_is_shared_by_its_groups() -> None:
    name = "void edgeseek::run_rows<1, edgeseek::PackedGroup<(edgeseek::Scheme)7> >(int)"
    group = ["sdot\tv0.4s, v1.16b, v2.4b[0]"] * 32 + ["ushr\tv1.16b, v1.16b, #4"]
    lines = [f"{0:016x} <{name}>:", *(f"  {4 * i:x}:\tfmul\tv3.4s, v3.4s, v4.4s" for i in range(16))]
    lines += [f"  {64 + 4 * i:x}:\t{text}" for i, text in enumerate(group)]
    lines += [f"  c4:\tb.ne\t40 <{name}>", f"  c8:\tb.ne\t0 <{name}>", "  cc:\tret"]
    (count,) = kernel_counts("neondot", parse("\n".join(lines)), None)
    assert count.instructions == 34 + (16 + 1) / 8
    assert count.key == "neondot q4k packed 1"


def test_a_peer_s_loop_must_do_the_expected_products() -> None:
    functions = parse(NESTED)
    products = SETS["neondot"].products
    trace = peer_loop(PeerLoop("q4", "packed", 1, "twice", 2 * 16, (2,)), functions, products)
    assert len(trace) == 12
    with pytest.raises(ValueError, match="no loop of 48 products"):
        peer_loop(PeerLoop("q4", "packed", 1, "twice", 48, (2,)), functions, products)
    with pytest.raises(ValueError, match="gone has no loop"):
        peer_loop(PeerLoop("q4", "packed", 1, "gone", 16), functions, products)


def test_tables_show_costs_per_multiply_accumulate() -> None:
    own = [
        Count("neondot", "q4", 1, "packed", 128, ROW_MACS, 64.0),
        Count("neondot", "q4", 4, "unpacked", 256, 4 * ROW_MACS),
    ]
    theirs = [Count("gemv", "q4", 1, "packed", 32, 128), Count("gemm", "q4", 16, "unpacked", 256, 2048)]
    assert "| neondot | q4 | 1 | packed | 0.2500 | 0.1250 | cortex-a76 |" in own_table(own)
    table = peer_table(own, theirs)
    assert "| q4 | 1 row | `gemv` | 0.2500 | 0.2500 | 1.00 | – | 0.1250 |" in table
    assert "| q4 | many rows | `gemm` | 0.1250 | 0.1250 | 1.00 | – | – |" in table


def test_a_page_keeps_what_stands_outside_the_markers() -> None:
    begin, end = "<!-- x: begin, written by tools/count_instructions.py -->", "<!-- x: end -->"
    page = f"before\n{begin}\nold\n{end}\nafter"
    assert replace_section(page, "x", "new") == f"before\n{begin}\nnew\n{end}\nafter"
    with pytest.raises(ValueError, match="no section for y"):
        replace_section(page, "y", "new")
