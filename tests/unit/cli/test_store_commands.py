"""`pull`, `list`, `show` and `rm` on a real store with a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.make_models.tiny import CASES, write
from tests.synthetic.models import package_of, package_of_gguf
from tests.unit.cli.fakes import Console

CASE = CASES["llama-tied"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write(CASE, tmp_path / "checkpoint")


@pytest.fixture
def name(console: Console, checkpoint: Path) -> str:
    """Name of the pulled tiny model."""
    assert console.run("pull", str(checkpoint)).code == 0
    return str(json.loads(console.run("list", "--json").out)[0]["name"])


def packages(console: Console) -> list[Path]:
    return [path for path in console.settings.packages_dir.iterdir() if not path.name.startswith(".")]


def test_pull_converts_a_path_and_says_what_it_did_in_one_line(console: Console, checkpoint: Path) -> None:
    found = console.run("pull", str(checkpoint), "--scheme", "q4")
    assert found.code == 0
    assert found.out.startswith("checkpoint-")
    assert "F32 to q4" in found.out
    assert found.out.count("\n") == 1
    assert checkpoint.is_dir()
    assert len(packages(console)) == 1


def test_pull_names_tensors_that_it_leaves_out(console: Console, tmp_path: Path) -> None:
    names = [f"model.layers.{layer}.self_attn.rotary_emb.inv_freq" for layer in (0, 1)]
    folder = write(CASE, tmp_path / "checkpoint", {name: np.ones(8, np.float32) for name in names})
    found = console.run("pull", str(folder))
    assert found.out.endswith(f"; left out {names[0]} and 1 more, derived or repeated\n")


def test_pull_again_does_nothing_unless_forced(console: Console, checkpoint: Path, name: str) -> None:
    again = console.run("pull", str(checkpoint))
    assert again.out == f"{name} is already here; --force pulls it again\n"
    assert again.err == ""
    assert "F32 to q8" in console.run("pull", str(checkpoint), "--force").out
    assert len(packages(console)) == 1


def test_pull_of_an_unknown_scheme_is_refused(console: Console, checkpoint: Path) -> None:
    found = console.run("pull", str(checkpoint), "--scheme", "q3")
    assert (found.code, found.out) == (2, "")
    assert found.error_line == "edgeseek: unknown scheme 'q3'; choose one of f32, f16, q8, q4"


def test_an_empty_list_says_how_to_get_a_model(console: Console) -> None:
    found = console.run("list")
    assert (found.code, found.out) == (0, "")
    assert found.error_line.endswith("packages; get one with: edgeseek pull smollm2-135m")
    assert console.run("list", "--json").out == "[]\n"


def test_list_shows_name_architecture_size_schemes_and_context(console: Console, name: str) -> None:
    heading, row = console.run("list").out.splitlines()
    assert heading.split() == ["NAME", "ARCHITECTURE", "SIZE", "SCHEMES", "CONTEXT"]
    assert row.split()[:2] == [name, "llama"]
    assert row.split()[4:] == ["q8", str(CASE.config()["max_position_embeddings"])]
    (entry,) = json.loads(console.run("list", "--json").out)
    assert set(entry) == {"name", "path", "architecture", "bytes", "schemes", "max_context", "problem"}
    assert (entry["schemes"], entry["problem"]) == (["q8"], None)


def test_a_damaged_model_is_listed_as_such_and_removed_by_its_name(console: Console, name: str) -> None:
    (package,) = packages(console)
    (package / "model.safetensors").write_bytes(b"x" * 100)
    found = console.run("list")
    assert found.out.splitlines()[1].split()[:2] == [name, "(damaged)"]
    assert str(package / "model.safetensors") in found.error_line
    (entry,) = json.loads(console.run("list", "--json").out)
    assert (entry["architecture"], entry["max_context"]) == (None, None)
    assert str(package) in entry["problem"]
    assert console.run("show", name).code == 1
    assert console.run("rm", name, "--yes").code == 0
    assert packages(console) == []


@pytest.mark.parametrize("by_path", [False, True])
def test_show_gives_config_schemes_and_digests(
    console: Console, name: str, checkpoint: Path, by_path: bool
) -> None:
    found = console.run("show", str(checkpoint) if by_path else name.upper())
    assert found.code == 0
    facts = dict(line.split("  ", 1) for line in found.out.split("\n\n")[0].splitlines())
    assert facts["name"].strip() == name
    assert facts["hidden size"].strip() == str(CASE.hidden_size)
    assert len(facts["package digest"].strip()) == len(facts["source digest"].strip()) == 64
    assert "verified" not in facts
    table = [line.split() for line in found.out.split("\n\n")[1].splitlines()]
    assert table[0][0] == "SCHEME"
    assert {row[0] for row in table[1:]} == {"q8", "f32"}


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        ("llama-tied", "theta 10000\n"),
        ("llama-linear-rope", "theta 10000, linear scaling by 4\n"),
        ("qwen3-yarn-rope", "theta 1e+06, yarn scaling by 4\n"),
    ],
)
def test_show_names_the_scaling_of_positions(console: Console, tmp_path: Path, case: str, shown: str) -> None:
    with package_of(CASES[case], tmp_path) as package:
        assert shown in console.run("show", str(package.path)).out


def test_show_tells_of_frequency_factors_of_a_gguf(console: Console, tmp_path: Path) -> None:
    with package_of_gguf(CASES["llama-llama3-rope"], tmp_path) as package:
        found = console.run("show", str(package.path)).out
    assert "theta 10000, each frequency divided by its own factor\n" in found


def test_show_lists_tensors_when_asked(console: Console, name: str) -> None:
    assert "layers.0.attn.q.weight" not in console.run("show", name).out
    rows = console.run("show", name, "--tensors").out.split("\n\n")[2].splitlines()
    (query,) = [row.split() for row in rows if row.startswith("layers.0.attn.q.weight")]
    rows_and_columns = [str(CASE.heads * CASE.head_dim), "×", str(CASE.hidden_size)]
    assert query[1:6] == [*rows_and_columns, "q8", "tiles"]


def test_show_json_agrees_with_itself(console: Console, name: str) -> None:
    shown = json.loads(console.run("show", name, "--tensors", "--json").out)
    assert shown["config"]["hidden_size"] == CASE.hidden_size
    assert sum(tensor["bytes"] for tensor in shown["tensors"].values()) == shown["weight_bytes"]
    assert sum(scheme["parameters"] for scheme in shown["schemes"].values()) == shown["parameters"]
    assert sum(scheme["tensors"] for scheme in shown["schemes"].values()) == len(shown["tensors"])


def test_show_verify_accepts_what_is_whole_and_names_what_is_damaged(console: Console, name: str) -> None:
    whole = console.run("show", name, "--verify")
    assert whole.code == 0
    assert "all tensors match their digests" in whole.out
    (package,) = packages(console)
    weights = package / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-100] ^= 1
    weights.write_bytes(data)
    assert console.run("show", name).code == 0
    damaged = console.run("show", name, "--verify")
    assert (damaged.code, damaged.out) == (1, "")
    assert "differ from their recorded digests" in damaged.err.splitlines()[-1]


def test_show_of_an_unknown_name_says_what_is_here(console: Console, name: str) -> None:
    found = console.run("show", "nothing")
    assert found.code == 2
    assert name in found.error_line


def test_rm_with_yes_deletes_and_says_what_was_freed(console: Console, name: str) -> None:
    found = console.run("rm", name, "--yes")
    assert found.code == 0
    assert found.out.startswith(f"deleted {name}, ")
    assert packages(console) == []


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("Yes\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_rm_asks_on_a_terminal(console: Console, name: str, answer: str, left: int) -> None:
    found = console.run("rm", name, stdin=answer, terminal=True)
    assert found.code == 0
    assert f"Delete {name} (" in found.err
    assert len(packages(console)) == left


def test_rm_without_a_terminal_needs_yes(console: Console, name: str) -> None:
    found = console.run("rm", name)
    assert found.code == 2
    assert "give --yes to delete without asking" in found.error_line
    assert len(packages(console)) == 1


def test_rm_deletes_nothing_when_one_name_is_wrong(console: Console, name: str) -> None:
    assert console.run("rm", name, "wrong", "--yes").code == 2
    assert len(packages(console)) == 1
