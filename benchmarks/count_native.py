"""Instructions of the core's forward pass on a small fixed workload, by function, counted by callgrind.

The AVX2 kernels run, on one thread: valgrind knows no AVX-512, and other threads would wait a varying number
of turns. Only what happens inside `Runner::forward` is counted, and of that only our own functions, because
libc picks its memcpy by the processor.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

PHASES = ("prefill", "decode", "batch")
_FUNCTION = re.compile(r"^fn=(.+)$")
_COST = re.compile(r"^[+*\-0-9]\S* (\d+)$")


def count_native(program: Path, phase: str) -> dict[str, int]:
    """Instructions by function of one phase of `count_workload`. Raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no",
                   "--compress-pos=no", "--toggle-collect=edgeseek::Runner::forward*", str(program), phase,
                   "avx2"]  # fmt: skip
        # Lazy binding would count the dynamic linker's look-ups.
        environment = {**os.environ, "LD_BIND_NOW": "1"}
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return parse(out.read_text(encoding="utf-8"))


def parse(profile: str) -> dict[str, int]:
    """Self cost of our functions in an uncompressed callgrind profile; a function's versions are added up."""
    costs: dict[str, int] = {}
    current, called = "", False
    for line in profile.splitlines():
        if match := _FUNCTION.match(line):
            current = readable(match[1])
        elif line.startswith("calls="):
            called = True  # the next line is what the callee cost
        elif match := _COST.match(line):
            if not called and "edgeseek" in current:
                costs[current] = costs.get(current, 0) + int(match[1])
            called = False
    return costs


def readable(name: str) -> str:
    """A function's name without namespaces, parameters, clone marks and recursion levels."""
    name = re.sub(r"'\d+$| \[clone .*?\]", "", name)
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and name[i - 8 : i] != "operator":
            return name[:i]
    return name
