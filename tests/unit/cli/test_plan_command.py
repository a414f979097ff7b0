"""`plan` shows what a model takes and what would fit, and `pull` refuses what cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeseek.cli import options
from edgeseek.errors import UsageError
from tests.make_models.tiny import CASES, write
from tests.unit.cli.fakes import Console

GIB = 1 << 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(CASES["llama-tied"], tmp_path / "checkpoint")


def give(console: Console, available: int) -> None:
    """A machine of 4 GiB of which `available` bytes are left."""
    text = f"MemTotal: {4 * GIB // 1024} kB\nMemAvailable: {available // 1024} kB\n"
    (console.settings.proc_root / "meminfo").write_text(text)


def test_the_table_has_every_kind_and_a_verdict(console: Console, folder: Path) -> None:
    found = console.run("plan", str(folder), "--device", "rpi5-8g", "--context", "256", "--slots", "2")
    assert (found.code, found.err) == (0, "")
    kinds = [line.split("  ")[0] for line in found.out.splitlines()[3:12]]
    assert kinds == [
        "weights",
        "KV cache",
        "activations",
        "logits",
        "runtime",
        "libraries",
        "needed",
        "reserve",
        "available",
    ]
    # 2 layers × 2 heads of 16 dimensions, keys and values of 2 bytes; 2 × 256 tokens.
    assert "256 bytes a token at f16, 16 blocks of 32 tokens" in found.out
    assert "fits: a context of 2 × 256 tokens (asked for)" in found.out
    assert "importing it takes" in found.out


def test_a_config_alone_is_enough(console: Console, folder: Path) -> None:
    whole = json.loads(console.run("plan", str(folder), "--device", "rpi5-8g", "--json").out)
    bare = json.loads(console.run("plan", str(folder / "config.json"), "--device", "rpi5-8g", "--json").out)
    assert bare["plan"] == whole["plan"]
    assert whole["fits"]
    assert whole["plan"]["needed"] == whole["plan"]["anonymous"] + whole["plan"]["file_backed"]


def test_what_does_not_fit_ends_with_1_and_shows_what_does(console: Console, folder: Path) -> None:
    arguments = ["plan", str(folder), "--device", "rpi5-8g", "--context", "512", "--json"]
    needed = json.loads(console.run(*arguments).out)["plan"]["needed"]
    found = console.run(*arguments, "--budget", str(needed - 1))
    assert found.code == 1
    told = json.loads(found.out)
    assert (told["fits"], told["plan"]["needed"], told["plan"]["available"]) == (False, needed, needed - 1)
    smaller = told["alternatives"][0]
    assert smaller["options"] == "--context 480"
    assert smaller["plan"]["needed"] < needed
    text = console.run(*arguments[:-1], "--budget", str(needed - 1))
    assert text.code == 1
    assert "does not fit: a context of 512 tokens needs" in text.out
    assert "  --context 480: " in text.out


def test_a_device_a_budget_and_a_cache_that_are_unknown_are_refused(console: Console, folder: Path) -> None:
    wrong = console.run("plan", str(folder), "--device", "toaster")
    assert (wrong.code, "give one of rk3588-8g, orin-nx-16g, rpi5-8g, this" in wrong.error_line) == (2, True)
    assert (
        "--budget is 'much'"
        in console.run("plan", str(folder), "--device", "rpi5-8g", "--budget", "much").err
    )
    assert "'f8' is unknown" in console.run("plan", str(folder), "--device", "rpi5-8g", "--kv", "f8").err


def test_a_model_in_one_file_must_be_pulled_first(console: Console) -> None:
    found = console.run("plan", "smollm2-135m", "--device", "rpi5-8g")
    assert found.code == 2
    assert "edgeseek pull smollm2-135m" in found.error_line


def test_a_pulled_model_is_planned_by_its_name(console: Console, folder: Path) -> None:
    give(console, 3 * GIB)
    assert console.run("pull", str(folder)).code == 0
    name = json.loads(console.run("list", "--json").out)[0]["name"]
    told = json.loads(console.run("plan", name, "--json").out)
    assert told["model"] == name
    assert told["import_peak"] is None
    assert told["plan"]["decided_by"] == "MemAvailable"


def test_pull_says_what_the_model_will_take(console: Console, folder: Path) -> None:
    give(console, 3 * GIB)
    found = console.run("pull", str(folder))
    assert "checkpoint: context 512 (the model's); needs" in found.err


def test_pull_refuses_what_cannot_fit_unless_forced(console: Console, folder: Path) -> None:
    # 40 MB beyond the reserve of a tenth.
    give(console, 4 * GIB // 10 + 40_000_000)
    refused = console.run("pull", str(folder))
    assert refused.code == 1
    assert "are lacking" in refused.error_line
    assert "--force pulls it all the same" in refused.error_line
    assert json.loads(console.run("list", "--json").out) == []
    forced = console.run("pull", str(folder), "--force")
    assert forced.code == 0
    assert "pulled all the same" in forced.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GiB", 2 << 30),
        ("800MB", 800_000_000),
        ("1.5 GiB", 3 << 29),
        ("64K", 64_000),
        ("64k", 64_000),
        ("3Mi", 3 << 20),
        ("1048577", 1048577),
        (None, None),
    ],
)
def test_sizes(text: str | None, expected: int | None) -> None:
    assert options.byte_count("--budget", text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "2 PB", "2iB", "1,5GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--budget is .*; give a size such as 2GiB"):
        options.byte_count("--budget", text)
