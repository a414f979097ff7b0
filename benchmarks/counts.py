"""Compare what a small fixed workload costs in instructions with benchmarks/counts.json, or renew that file.

python -m benchmarks.counts BUILD_FOLDER... [--update]

BUILD_FOLDERs are CMake build folders: of this machine, with the target count_workload, and of aarch64
(optional). Three kinds of counts, none of which depends on a clock: instructions of the core's forward pass
with the AVX2 kernels (callgrind), instructions of the matrix kernels' inner loops for all instruction sets
(disassembly), and bytecode instructions of the engine's steps. What cannot be counted here is named and
skipped. `make counts` compares, `make baseline` renews.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.count_compare import Comparison, Section, compare, load, save
from benchmarks.count_native import PHASES, count_native
from benchmarks.count_python import count_python, traces_repeat
from tools.count_instructions import SETS, object_counts

BASELINE = Path(__file__).with_name("counts.json")
ACCEPT = "If that is wanted, run `make baseline` and commit benchmarks/counts.json with the reason."
_COMPILER = re.compile(r"(GCC|clang)\S*(?: \(.*?\)| version)? (\d+)\.")

Found = Section | str


def compiler_of(path: Path) -> str:
    """Names and major versions of the compilers that made an object or program, from its .comment section."""
    command = ["readelf", "-p", ".comment", str(path)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {f"{name.replace('GCC', 'g++')} {major}" for name, major in _COMPILER.findall(listing)}
    return ", ".join(sorted(found)) or "an unknown compiler"


def native_sections(
    build: Path, which: Callable[[str], str | None], machine: str
) -> Iterator[tuple[str, Found]]:
    """The forward pass under callgrind; the reason instead of a section where it cannot be counted."""
    program = build / "count_workload"
    reason = None
    if machine != "x86_64":
        reason = f"the workload runs the AVX2 kernels, and this is {machine}"
    elif which("valgrind") is None:
        reason = "valgrind is not installed (Debian package valgrind)"
    elif not program.exists():
        reason = f"{program} is not built (cmake --build {build} --target count_workload)"
    for phase in PHASES:
        name = f"instructions of {phase}"
        yield name, reason or Section(compiler_of(program), count_native(program, phase))


def loop_sections(builds: Sequence[Path], which: Callable[[str], str | None]) -> Iterator[tuple[str, Found]]:
    """The inner loops of each instruction set, in instructions per group of 32 columns."""
    for name, isa in SETS.items():
        title = f"inner loops of {name}"
        places = [b / f"CMakeFiles/edgeseek_core.dir/native/kernels/kernels_{name}.cpp.o" for b in builds]
        made = [place for place in places if place.exists()]
        if not made:
            yield title, f"no build folder here holds kernels_{name}.cpp.o"
        elif which(isa.objdump) is None:
            yield title, f"{isa.objdump} is not installed"
        else:
            counts = {count.key: count.instructions for count in object_counts(made[0], None)}
            yield title, Section(compiler_of(made[0]), counts, summed=False)


def python_section() -> tuple[str, Found]:
    """The Python side of the engine's steps, where this Python counts it reliably."""
    name = "bytecode of engine steps"
    if not traces_repeat(sys.version_info):
        return name, "Python 3.12 and later miss instructions while tracing begins; 3.10 and 3.11 do not"
    with tempfile.TemporaryDirectory() as folder:
        counts = count_python(Path(folder))
    return name, Section("Python " + ".".join(platform.python_version_tuple()[:2]), counts)


def report(comparisons: Sequence[Comparison]) -> int:
    """Print what was found; 1 if anything grew."""
    for comparison in comparisons:
        print(comparison.message)
    verdicts = {comparison.verdict for comparison in comparisons}
    if "more" in verdicts:
        print(f"\nMore instructions than the baseline. {ACCEPT}")
        return 1
    if "fewer" in verdicts:
        print("\nFewer instructions than the baseline: `make baseline` keeps the gain.")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, then compare or store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("builds", nargs="+", type=Path, metavar="BUILD_FOLDER")
    parser.add_argument("--update", action="store_true", help="store the counts instead of comparing them")
    options = parser.parse_args(arguments)
    stored = load(BASELINE)
    comparisons = []
    for name, found in (
        *native_sections(options.builds[0], shutil.which, platform.machine()),
        *loop_sections(options.builds, shutil.which),
        python_section(),
    ):
        if isinstance(found, str):
            comparisons.append(Comparison("skipped", f"{name}: skipped, {found}"))
        else:
            if options.update:
                stored[name] = found
            comparisons.append(compare(name, stored.get(name), found))
    if not options.update:
        return report(comparisons)
    save(BASELINE, stored)
    print("\n".join(comparison.message for comparison in comparisons))
    return 0


if __name__ == "__main__":
    sys.exit(main())
