"""Counts that grew fail with the function's name; what cannot be compared is skipped with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.count_compare import Comparison, Section, compare, load, save
from benchmarks.counts import ACCEPT, loop_sections, native_sections, report

BEFORE = Section("g++ 12", {"gemm_integer<q4>": 100_000, "rms_norm": 9_000, "validate": 100})


def now(**counts: float) -> Section:
    return Section("g++ 12", {**BEFORE.counts, **counts})


def nothing_installed(program: str) -> str | None:
    return None


def all_installed(program: str) -> str | None:
    return f"/usr/bin/{program}"


def test_equal_counts_pass() -> None:
    assert compare("decode", BEFORE, now()) == Comparison("same", "decode: 109,100, +0.00% against 109,100")


def test_a_function_that_grew_is_named_with_both_counts() -> None:
    found = compare("decode", BEFORE, now(rms_norm=9_900))
    assert found.verdict == "more"
    assert "rms_norm: 9,000 -> 9,900" in found.message
    assert "gemm_integer" not in found.message


def test_growth_within_the_tolerance_passes() -> None:
    assert compare("decode", BEFORE, now(rms_norm=9_100)).verdict == "same"


def test_growth_of_a_function_that_hardly_counts_passes() -> None:
    assert compare("decode", BEFORE, now(validate=300)).verdict == "same"


def test_a_total_that_grew_in_small_pieces_fails() -> None:
    pieces = {f"new_{i}": 400.0 for i in range(8)}
    found = compare("decode", BEFORE, now(**pieces))
    assert found.verdict == "more"
    assert "new_0: 0 -> 400" in found.message
    assert "and 3 more" in found.message


def test_a_renamed_function_passes() -> None:
    renamed = {name.replace("rms_norm", "norm"): count for name, count in BEFORE.counts.items()}
    assert compare("decode", BEFORE, Section("g++ 12", renamed)).verdict == "same"


def test_each_loop_stands_alone() -> None:
    before = Section("g++ 12", {"avx2 q4 packed 1": 96.0, "avx2 q8 packed 4": 400.0}, summed=False)
    after = Section("g++ 12", {"avx2 q4 packed 1": 99.0, "avx2 q8 packed 4": 300.0}, summed=False)
    found = compare("inner loops", before, after)
    assert found.verdict == "more"
    assert "avx2 q4 packed 1: 96 -> 99" in found.message


def test_fewer_instructions_pass_and_are_told() -> None:
    assert compare("decode", BEFORE, now(rms_norm=4_000)).verdict == "fewer"


def test_another_compiler_is_skipped_with_both_names() -> None:
    found = compare("decode", BEFORE, Section("g++ 14", now(rms_norm=90_000).counts))
    assert found.verdict == "skipped"
    assert "g++ 12" in found.message
    assert "g++ 14" in found.message


def test_a_section_without_a_baseline_is_skipped() -> None:
    assert compare("decode", None, now()).verdict == "skipped"


def test_growth_exits_with_one_and_says_how_to_accept_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert report([compare("decode", BEFORE, now()), compare("decode", BEFORE, now(rms_norm=19_000))]) == 1
    assert ACCEPT in capsys.readouterr().out


def test_skipped_sections_exit_with_zero_and_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert report([compare("decode", None, now())]) == 0
    assert "decode: skipped" in capsys.readouterr().out


def test_a_baseline_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    loops = Section("g++ 12", {"avx2 q4 packed 1": 96.5}, summed=False)
    save(path, {"decode": BEFORE, "loops": loops})
    assert load(path) == {"decode": BEFORE, "loops": loops}


def test_a_missing_baseline_is_empty(tmp_path: Path) -> None:
    assert load(tmp_path / "counts.json") == {}


@pytest.mark.parametrize(
    ("machine", "installed", "reason"),
    [
        ("x86_64", False, "valgrind is not installed"),
        ("x86_64", True, "is not built"),
        ("aarch64", True, "this is aarch64"),
    ],
)
def test_what_callgrind_lacks_is_the_reason(
    machine: str, installed: bool, reason: str, tmp_path: Path
) -> None:
    which = all_installed if installed else nothing_installed
    found = [said for _, said in native_sections(tmp_path, which, machine)]
    assert len(found) == 3
    assert all(isinstance(said, str) and reason in said for said in found)


def test_loops_that_nobody_built_are_the_reason(tmp_path: Path) -> None:
    found = dict(loop_sections([tmp_path], all_installed))
    assert found["inner loops of neon"] == "no build folder here holds kernels_neon.cpp.o"
