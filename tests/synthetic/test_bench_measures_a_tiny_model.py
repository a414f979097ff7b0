"""`edgeseek bench` on a tiny model, whole: every part is measured, printed and in the object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgeseek.bench.suite import start_options
from edgeseek.llm import LLM
from edgeseek.runtime.native import NativeBackend
from edgeseek.settings import Settings
from tests.make_models.tiny import CASES
from tests.synthetic.models import package_of
from tests.unit.cli.fakes import Console


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    opened = package_of(CASES["llama-tied"], tmp_path_factory.mktemp("bench"), "q8")
    opened.close()
    return opened.path


def bench(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "edgeseek",
        "bench",
        str(package),
        "--repeat",
        "1",
        "--threads",
        "2",
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_object_holds_every_part(package: Path) -> None:
    done = bench(package, "--json", "--sustained", "0.002")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["threads"] == 2
    assert found["roofline"]["bandwidth"] > 0
    assert found["roofline"]["int8_peak"] > 0
    kinds = {(row["kind"], row["amount"]) for row in found["rows"]}
    assert {("prefill", 128), ("decode", 128), ("streams", 1), ("streams", 2)} <= kinds
    assert all(row["tokens_per_s"] > 0 and 0 < row["efficiency"] < 2 for row in found["rows"])
    assert {"cold", "warm", "warm, --preload none", "warm, --preload copy"} <= set(found["starts_s"])
    assert found["memory"]["peak"] > 10**6
    assert found["least_available_bytes"] > 0
    assert found["sustained"]["sustained_over_peak"] <= 1
    # The tiny model knows 512 positions or fewer: what is larger is named.
    assert any("2048" in line for line in found["skipped"])
    assert not found["interrupted"]


def test_tables_are_printed_and_fit_in_100_columns(package: Path) -> None:
    done = bench(package, "--seq", "64", "--batch", "2", "--no-starts")
    assert done.returncode == 0, done.stderr
    assert "prefill 64 tokens" in done.stdout
    assert "decode at context 64" in done.stdout
    assert "decode 2 streams" in done.stdout
    assert "of the limit" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_the_devices_table_is_one_row(package: Path) -> None:
    done = bench(package, "--devices-table")
    head, rule, row = done.stdout.splitlines()
    assert head == "| device | model | ms/token | peak MB | largest context that fits |"
    assert rule == "|---|---|---:|---:|---:|"
    assert row.count("|") == 6
    assert float(row.split("|")[3]) > 0


class InterruptedAtTheEnd(LLM):
    """A model whose closing is interrupted, as by a second Ctrl-C."""

    def close(self) -> None:
        super().close()
        raise KeyboardInterrupt


def test_a_second_interrupt_while_the_model_is_closed_loses_no_figure(package: Path, tmp_path: Path) -> None:
    console = Console(tmp_path)
    console.changes = {"load": InterruptedAtTheEnd.load, "settings": Settings(cache_dir=tmp_path)}
    outcome = console.run(
        "bench", str(package), "--seq", "32", "--batch", "1", "--repeat", "1", "--no-starts"
    )
    assert outcome.code == 130
    assert "prefill 32 tokens" in outcome.out


def test_starts_are_measured_as_the_model_was_loaded(package: Path) -> None:
    with LLM.load(package, kv="int8", threads=2) as llm:
        assert isinstance(llm.backend, NativeBackend)
        assert start_options(llm.backend) == ["--threads", "2", "--kv", "int8"]
