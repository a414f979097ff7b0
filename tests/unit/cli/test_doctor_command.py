"""`doctor` shows a table or an object; a problem makes the exit code 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeseek.doctor import Device, Examination, Finding
from tests.unit.cli.fakes import Console

GOOD = Finding("page size", "16 KiB", "packages are aligned for it")
NOTE = Finding("extra hub", "missing: huggingface_hub", "for pulling", "note", "pip install 'edgeseek[hub]'")
BAD = Finding("supply voltage", "too low", "the clock falls", "problem", "a stronger supply")


def examined(console: Console, *findings: Finding) -> None:
    found = Examination(Device("Raspberry Pi 5", None), {"memory": findings})
    console.changes["examine"] = lambda settings: found


def test_a_table_with_the_remedy(console: Console) -> None:
    examined(console, GOOD, NOTE)
    shown = console.run("doctor")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0] == "Raspberry Pi 5"
    assert [line for line in lines if "OK" in line and "16 KiB" in line]
    # Square brackets are no markup.
    assert [line for line in lines if "→ pip install 'edgeseek[hub]'" in line]
    assert lines[-1] == "no problems, 1 note; → says what would mend it"


@pytest.mark.parametrize(("findings", "code"), [((GOOD,), 0), ((GOOD, NOTE), 0), ((GOOD, BAD), 1)])
def test_only_a_problem_changes_the_exit_code(
    console: Console, findings: tuple[Finding, ...], code: int
) -> None:
    examined(console, *findings)
    assert console.run("doctor").code == code
    assert console.run("doctor", "--json").code == code


def test_the_object(console: Console) -> None:
    examined(console, GOOD, NOTE, BAD)
    shown = json.loads(console.run("doctor", "--json").out)
    assert (shown["device"]["name"], shown["notes"], shown["problems"]) == ("Raspberry Pi 5", 1, 1)
    assert shown["findings"][2] == {
        "part": "memory",
        "subject": "supply voltage",
        "found": "too low",
        "meaning": "the clock falls",
        "status": "problem",
        "remedy": "a stronger supply",
    }


def test_a_machine_without_proc_is_an_error_of_one_line(console: Console, tmp_path: Path) -> None:
    shown = console.run("doctor")
    assert shown.code == 1
    assert "is /proc mounted?" in shown.error_line
