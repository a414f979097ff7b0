"""Instructions per multiply-accumulate of the matrix kernels' inner loops, from disassembly.

python -m tools.count_instructions OBJECT... [--llamacpp GGML_FOLDER] [--write docs/benchmarks.md]

OBJECTs are compiled kernel files (kernels_SET.cpp.o). With the folder `ggml` of llama.cpp's sources, its
kernels for aarch64 are compiled and counted as well. Cycles are llvm-mca's prediction, with every load found
in the first cache. Counts, not speeds: nothing is run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.loops import Instruction, Loop, cycles, disassemble, find_loops
from tools.peer_loops import PEER_LOOPS, compile_llamacpp, peer_loop

#: Channels of a tile times columns of a group: what one row costs, in multiply-accumulates.
ROW_MACS = 16 * 32
#: Groups of 32 columns that share a block of two-level scales.
BLOCK_GROUPS = 8
SCHEMES = {2: "q8", 3: "q4", 4: "q4z", 5: "q5", 6: "q5z", 7: "q4k", 8: "q5k", 9: "q6k"}
TABLED = ("q4", "q4z", "q8", "q4k", "q6k")
_TWO_LEVEL = frozenset({"q4k", "q5k", "q6k"})
_SCHEME = re.compile(r"\(edgeseek::Scheme\)(\d+)")
_HALF_LOADS = frozenset({"fcvtl", "vcvtph2ps"})
_SHIFTS = frozenset({"ushr", "vpsrlw"})
_PREFETCH = re.compile(r"^prf|^prefetch")


@dataclass(frozen=True)
class InstructionSet:
    """How to read the kernels of one instruction set: multiply-accumulates of one instruction that multiplies
    integers, and the processor for llvm-mca.
    """

    objdump: str
    triple: str
    cpu: str
    products: dict[str, int]


_ARM = ("aarch64-linux-gnu-objdump", "aarch64-linux-gnu")
_X86 = ("objdump", "x86_64-linux-gnu")
SETS = {
    "neon": InstructionSet(*_ARM, "cortex-a72", dict.fromkeys(("smull", "smull2", "smlal", "smlal2"), 8)),
    "neondot": InstructionSet(*_ARM, "cortex-a76", {"sdot": 16}),
    "avx2": InstructionSet(*_X86, "znver3", {"vpmaddubsw": 32}),
    "avx512": InstructionSet(*_X86, "icelake-server", {"vpdpbusd": 64}),
}


@dataclass(frozen=True)
class Count:
    """One loop's cost. `source` is "packed" (weights unpacked on the fly) or "unpacked" (once for many rows).

    `kernel` is an instruction set of ours, or the name of a peer's function.
    """

    kernel: str
    scheme: str
    rows: int
    source: str
    instructions: float
    macs: int
    cycles: float | None = None

    @property
    def key(self) -> str:
        """What names this loop in a baseline."""
        return f"{self.kernel} {self.scheme} {self.source} {self.rows}"

    @property
    def per_mac(self) -> float:
        """Instructions for one multiply-accumulate."""
        return self.instructions / self.macs


def products(code: Iterable[Instruction], table: dict[str, int]) -> int:
    """Multiply-accumulates of these instructions."""
    return sum(table.get(i.mnemonic, 0) for i in code)


def set_of(path: Path) -> str:
    """The instruction set in the name of a kernel's object file. Raises ValueError on another file."""
    match = re.match(r"kernels_(\w+?)\.", path.name)
    if match is None or match[1] not in SETS:
        raise ValueError(f"{path} is no kernel object; give kernels_{{{','.join(SETS)}}}.cpp.o")
    return match[1]


def kernel_counts(name: str, functions: dict[str, list[Instruction]], llvm_mca: str | None) -> list[Count]:
    """The loop that runs for each scheme, way of reading weights and row count.

    It prefetches where weights are packed and does not where they are unpacked already, if there is a choice;
    the shortest counts where several fit.
    """
    isa = SETS[name]
    found: dict[tuple[str, str, int], tuple[bool, float, list[Instruction], int]] = {}
    for function, code in functions.items():
        if "gemm_" not in function and "run_" not in function:
            continue
        match = _SCHEME.search(function)
        if match is None or products(code, isa.products) == 0:
            continue
        scheme = SCHEMES[int(match[1])]
        loops = find_loops(code)
        for loop in loops:
            macs = products(loop.own(), isa.products)
            if macs == 0 or macs % ROW_MACS != 0:
                continue
            mnemonics = {i.mnemonic for i in loop.body}
            packed = bool(mnemonics & _SHIFTS if scheme in _TWO_LEVEL else mnemonics & _HALF_LOADS)
            trace, groups = loop.body, 1
            if packed and scheme in _TWO_LEVEL:
                trace, groups = _block(loop, loops).trace((BLOCK_GROUPS,)), BLOCK_GROUPS
            fetches = any(_PREFETCH.match(m) for m in mnemonics)
            key = (scheme, "packed" if packed else "unpacked", macs // ROW_MACS)
            candidate = (fetches != packed, len(trace) / groups, trace, groups)
            if key not in found or candidate[:2] < found[key][:2]:
                found[key] = candidate
    return [
        Count(name, scheme, rows, source, instructions, rows * ROW_MACS,
              cycles(llvm_mca, isa.triple, isa.cpu, trace) / groups if llvm_mca else None)
        for (scheme, source, rows), (_, instructions, trace, groups) in sorted(found.items())
    ]  # fmt: skip


def _block(loop: Loop, loops: Sequence[Loop]) -> Loop:
    """The loop over blocks around a loop over the groups of a block."""
    for outer in loops:
        if loop in outer.inner:
            return outer
    raise ValueError(f"the loop at {loop.head:#x} has none around it that could decode a block's scales")


def object_counts(path: Path, llvm_mca: str | None) -> list[Count]:
    """All counts of one kernel object file."""
    name = set_of(path)
    return kernel_counts(name, disassemble(SETS[name].objdump, path), llvm_mca)


def peer_counts(ggml: Path, llvm_mca: str | None) -> list[Count]:
    """llama.cpp's kernels for NEON with dotprod. Raises ValueError if a loop is not built as expected."""
    isa = SETS["neondot"]
    with tempfile.TemporaryDirectory() as folder:
        functions: dict[str, list[Instruction]] = {}
        for path in compile_llamacpp(ggml, Path(folder)):
            functions |= disassemble(isa.objdump, path)
    counts = []
    for wanted in PEER_LOOPS:
        trace = peer_loop(wanted, functions, isa.products)
        cost = cycles(llvm_mca, isa.triple, isa.cpu, trace) if llvm_mca else None
        counts.append(
            Count(wanted.function, wanted.scheme, wanted.rows, wanted.source, len(trace), wanted.macs, cost)
        )
    return counts


def own_table(counts: Sequence[Count]) -> str:
    """Markdown: a row for each scheme, row count and way of reading weights that users meet most."""
    lines = [
        "| kernels | scheme | rows | weights | instructions/MAC | cycles/MAC | for |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, isa in SETS.items():
        of_set = [c for c in counts if c.kernel == name]
        block = max((c.rows for c in of_set), default=0)
        wanted = {("packed", 1), ("packed", min(4, block)), ("packed", block), ("unpacked", block)}
        for scheme in TABLED:
            chosen = [c for c in of_set if c.scheme == scheme and (c.source, c.rows) in wanted]
            lines += [_row(c, isa.cpu) for c in sorted(chosen, key=lambda c: (c.source, c.rows))]
    return "\n".join(lines)


def _row(c: Count, cpu: str) -> str:
    spent = "–" if c.cycles is None else f"{c.cycles / c.macs:.4f}"
    return f"| {c.kernel} | {c.scheme} | {c.rows} | {c.source} | {c.per_mac:.4f} | {spent} | {cpu} |"


def peer_table(own: Sequence[Count], peer: Sequence[Count]) -> str:
    """Markdown: llama.cpp's loops beside ours for the same work on NEON with dotprod."""
    lines = [
        "| scheme | work | llama.cpp's kernel | instructions/MAC | ours | ratio | cycles/MAC | ours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ours = [c for c in own if c.kernel == "neondot"]
    block = max((c.rows for c in ours if c.source == "unpacked"), default=0)
    for theirs in peer:
        rows = theirs.rows if theirs.source == "packed" else block
        match = [c for c in ours if (c.scheme, c.source, c.rows) == (theirs.scheme, theirs.source, rows)]
        if not match:
            continue
        mine = match[0]
        work = f"{theirs.rows} row{'s' * (theirs.rows > 1)}" if theirs.source == "packed" else "many rows"
        spent = ["–" if c.cycles is None else f"{c.cycles / c.macs:.4f}" for c in (theirs, mine)]
        lines.append(
            f"| {mine.scheme} | {work} | `{theirs.kernel}` | {theirs.per_mac:.4f} | {mine.per_mac:.4f} "
            f"| {mine.per_mac / theirs.per_mac:.2f} | {spent[0]} | {spent[1]} |"
        )
    return "\n".join(lines)


def replace_section(text: str, name: str, content: str) -> str:
    """`text` with what stands between the markers of `name` replaced. Raises ValueError without markers."""
    begin, end = f"<!-- {name}: begin, written by tools/count_instructions.py -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no section for {name}: put these lines where it belongs:\n{begin}\n{end}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("objects", nargs="+", type=Path, metavar="OBJECT")
    parser.add_argument(
        "--llamacpp", type=Path, metavar="GGML_FOLDER", help="also count llama.cpp's NEON kernels"
    )
    parser.add_argument("--llvm-mca", default="llvm-mca", help="name of the program (default: %(default)s)")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="replace the tables between a page's markers"
    )
    options = parser.parse_args(arguments)
    try:
        own = [count for path in options.objects for count in object_counts(path, options.llvm_mca)]
        tables = {"instruction counts": own_table(own)}
        if options.llamacpp:
            tables["llama.cpp's counts"] = peer_table(own, peer_counts(options.llamacpp, options.llvm_mca))
        if options.write:
            text = options.write.read_text(encoding="utf-8")
            for name, table in tables.items():
                text = replace_section(text, name, table)
            options.write.write_text(text, encoding="utf-8")
    except FileNotFoundError as error:
        print(f"{error.filename} is missing; CONTRIBUTING.md lists what to install", file=sys.stderr)
        return 1
    except (ValueError, subprocess.CalledProcessError) as error:
        print(f"{error}\n{getattr(error, 'stderr', None) or ''}".rstrip(), file=sys.stderr)
        return 1
    if not options.write:
        print("\n\n".join(tables.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
