"""Callgrind's profiles and the bytecode of engine steps become counts by function."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from benchmarks.count_native import parse, readable
from benchmarks.count_python import count_python, traces_repeat

PROFILE = """# callgrind format
version: 1
events: Ir

fl=/src/forward.cpp
fn=edgeseek::Runner::forward(edgeseek::Batch const&, float*)
10 7
cfn=edgeseek::(anonymous namespace)::quantize(float const*, unsigned long)
calls=3 20
11 900
+1 5

fl=/src/ops.h
fn=edgeseek::(anonymous namespace)::quantize(float const*, unsigned long)
20 600
fi=/src/vec16_avx2.h
30 300

fn=edgeseek::(anonymous namespace)::quantize(float const*, unsigned long) [clone .cold]
40 11

fn=__memcpy_avx_unaligned_erms
0 5000
"""


def test_own_costs_without_those_of_callees_and_libc() -> None:
    assert parse(PROFILE) == {"edgeseek::Runner::forward": 12, "edgeseek::quantize": 911}


def test_names_lose_what_only_the_compiler_cares_for() -> None:
    name = "void edgeseek::(anonymous namespace)::gemm_integer<(edgeseek::Scheme)3>(unsigned char const*)'2"
    assert readable(name) == "edgeseek::gemm_integer<(edgeseek::Scheme)3>"
    assert readable("edgeseek::Less::operator()(int, int) const") == "edgeseek::Less::operator()"


@pytest.mark.skipif(not traces_repeat(sys.version_info), reason="this Python misses instructions")
def test_bytecode_counts_repeat_and_cover_the_step(tmp_path: Path) -> None:
    first = count_python(tmp_path / "first")
    assert first == count_python(tmp_path / "second")
    counted = {name.rsplit(".", 1)[-1] for name in first}  # classes are named from Python 3.11 on
    assert {"step", "schedule", "forward", "sample"} <= counted
    assert not any("submit" in name for name in first)


def test_other_threads_are_not_left_traced(tmp_path: Path) -> None:
    count_python(tmp_path)
    assert threading.gettrace() is None
