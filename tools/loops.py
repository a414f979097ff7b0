"""Loops of a disassembled object file, and what they cost.

Reads what `objdump -d -C --no-show-raw-insn` prints for x86-64 (AT&T syntax) and aarch64, and llvm-mca's
report. Knows nothing of edgeseek's kernels: `count_instructions.py` says which loops matter.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*?)\s*$")
_TARGET = re.compile(r"(?:^|,\s*)([0-9a-f]+) <")
_ENDS = frozenset({"ret", "retq", "br", "jmp", "jmpq", "b", "ud2", "brk"})
_BRANCH = re.compile(r"^(j\w+|b|b\.\w+|cbn?z|tbn?z)$")
_CYCLES = re.compile(r"^Total Cycles:\s+(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Instruction:
    """One line of a disassembly; `target` is where a branch inside its function goes."""

    address: int
    mnemonic: str
    operands: str
    target: int | None

    @property
    def text(self) -> str:
        """The instruction as an assembler reads it, with all branches going to one label."""
        operands = re.sub(r"\s*(//.*|<.*|#\s+[0-9a-f]+.*)$", "", self.operands)
        if self.target is not None:
            operands = re.sub(r"[0-9a-f]+$", ".Lout", operands)
        return f"{self.mnemonic} {operands}"


@dataclass
class Loop:
    """A natural loop: the instructions of its blocks in order of address, inner loops included."""

    head: int
    body: list[Instruction]
    inner: list[Loop] = field(default_factory=list)

    @cached_property
    def addresses(self) -> frozenset[int]:
        """Addresses of `body`."""
        return frozenset(i.address for i in self.body)

    def own(self) -> list[Instruction]:
        """The instructions that no inner loop holds."""
        held = frozenset[int]().union(*(loop.addresses for loop in self.inner))
        return [i for i in self.body if i.address not in held]

    def trace(self, trips: tuple[int, ...] = ()) -> list[Instruction]:
        """One iteration in order of address; the loops inside run `trips[0]` times each, those inside of
        them `trips[1]` times, and so on (once where `trips` ends).
        """
        times = trips[0] if trips else 1
        pieces = [(i.address, [i]) for i in self.own()]
        pieces += [(loop.body[0].address, loop.trace(trips[1:]) * times) for loop in self.inner]
        return [i for _, piece in sorted(pieces, key=lambda p: p[0]) for i in piece]

    def depth(self) -> int:
        """How many levels of loops are inside."""
        return max((1 + loop.depth() for loop in self.inner), default=0)


def disassemble(objdump: str, path: Path) -> dict[str, list[Instruction]]:
    """Functions of an object file by demangled name. Raises CalledProcessError if objdump can't read it."""
    command = [objdump, "-d", "-C", "--no-show-raw-insn", str(path)]
    return parse(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parse(listing: str) -> dict[str, list[Instruction]]:
    """Functions of an objdump listing by name."""
    functions: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in listing.splitlines():
        if match := _FUNCTION.match(line):
            current = functions.setdefault(match[1], [])
        elif match := _INSTRUCTION.match(line):
            target = _TARGET.search(match[3]) if _BRANCH.match(match[2]) else None
            address = int(match[1], 16)
            current.append(Instruction(address, match[2], match[3], int(target[1], 16) if target else None))
    return functions


def find_loops(code: list[Instruction]) -> list[Loop]:
    """All natural loops of a function, inner ones before those that hold them."""
    blocks, before, after = _blocks(code)
    order = sorted(blocks)
    dominators = _dominators(order, before)
    bodies: dict[int, set[int]] = {}
    for tail in order:
        for head in after[tail]:
            if head in dominators[tail]:
                bodies.setdefault(head, {head}).update(_reaching(tail, head, before))
    loops: list[Loop] = []
    for head, starts in sorted(bodies.items(), key=lambda item: len(item[1])):
        loop = Loop(head, [i for start in sorted(starts) for i in blocks[start]])
        nested = [other for other in loops if other.addresses < loop.addresses]
        loop.inner = [a for a in nested if not any(a.addresses < b.addresses for b in nested)]
        loops.append(loop)
    return loops


def _blocks(
    code: list[Instruction],
) -> tuple[dict[int, list[Instruction]], dict[int, list[int]], dict[int, list[int]]]:
    """Basic blocks by first address, and their predecessors and successors."""
    addresses = {i.address for i in code}
    starts = {code[0].address}
    for this, following in itertools.pairwise(code):
        if this.target is not None or this.mnemonic in _ENDS:
            starts.add(following.address)
        if this.target in addresses:
            starts.add(this.target)
    if code[-1].target in addresses:
        starts.add(code[-1].target)
    blocks: dict[int, list[Instruction]] = {}
    for i in code:
        if i.address in starts:
            block = blocks.setdefault(i.address, [])
        block.append(i)
    after: dict[int, list[int]] = {start: [] for start in blocks}
    before: dict[int, list[int]] = {start: [] for start in blocks}
    order = sorted(blocks)
    for start, following_start in zip(order, [*order[1:], None], strict=True):
        last = blocks[start][-1]
        targets = [last.target] if last.target in blocks else []
        if last.mnemonic not in _ENDS and following_start is not None:
            targets.append(following_start)
        for target in targets:
            if target is not None:
                after[start].append(target)
                before[target].append(start)
    return blocks, before, after


def _dominators(order: list[int], before: dict[int, list[int]]) -> dict[int, set[int]]:
    """Blocks through which every way to a block leads (iterated to a fixed point)."""
    everything = set(order)
    result = dict.fromkeys(order, everything)
    entries = {order[0]} | {start for start in order if not before[start]}
    for start in entries:
        result[start] = {start}
    changed = True
    while changed:
        changed = False
        for start in order:
            if start in entries:
                continue
            now = {start}.union(set.intersection(*(result[p] for p in before[start])))
            if now != result[start]:
                result[start] = now
                changed = True
    return result


def _reaching(tail: int, head: int, before: dict[int, list[int]]) -> set[int]:
    """Blocks from which `tail` is reached without passing `head`."""
    found, waiting = {head}, [tail]
    while waiting:
        block = waiting.pop()
        if block not in found:
            found.add(block)
            waiting.extend(before[block])
    return found


def cycles(llvm_mca: str, triple: str, cpu: str, trace: list[Instruction], iterations: int = 50) -> float:
    """Cycles that llvm-mca predicts for one pass over `trace`, with all of its loads found in cache.

    Raises CalledProcessError, whose `stderr` names the instruction it can't read.
    """
    lines = [i.text for i in trace if i.mnemonic not in {"cs", "data16"}]
    command = [llvm_mca, f"-mtriple={triple}", f"-mcpu={cpu}", f"-iterations={iterations}"]
    command += ["-instruction-info=0", "-resource-pressure=0"]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    match = _CYCLES.search(done.stdout)
    if match is None:
        raise ValueError(f"llvm-mca printed no total of cycles: {done.stdout[:200]!r}")
    return int(match[1]) / iterations
