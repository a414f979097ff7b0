"""`edgeseek quantize`, whole: what comes out runs, says what it lost, and nothing is left of what failed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import pytest

from edgeseek.package import open_package
from edgeseek.settings import Settings
from tests.make_models.tiny import CASES, write
from tests.unit.cli.fakes import Console, Outcome

TEXT = "def add(a, b):\n    return a + b\n" * 120


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(CASES["llama-tied"], tmp_path / "hf")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def quantize(folder: Path, *words: object) -> Outcome:
    console = Console(Path(mkdtemp(dir=folder, prefix="console")))
    console.changes = {"settings": Settings(cache_dir=folder / "cache", threads=1)}
    return console.run("quantize", *map(str, words))


def beside(path: Path) -> set[str]:
    return {entry.name for entry in path.parent.iterdir()}


@pytest.mark.parametrize(
    "case", ["llama-tied", "qwen2-untied", "qwen3-tied", "deepseek-v2-experts", "deepseek-v3-experts"]
)
def test_every_family_is_quantized_and_runs(tmp_path: Path, text: Path, case: str) -> None:
    source, target = write(CASES[case], tmp_path / "hf"), tmp_path / "out"
    found = quantize(tmp_path, source, "-o", target, "--calibrate", text, "--text", text)
    assert found.code == 0, found.err
    assert f"{target} (" in found.out
    assert "gptq on " in found.out
    assert "KL divergence 0." in found.out
    with open_package(target) as package:
        assert package.manifest.calibration is not None
        assert package.manifest.calibration["method"] == "gptq"
        assert {t.scheme for n, t in package.tensors.items() if n.endswith("router.weight")} <= {"f32"}
    command = [
        sys.executable,
        "-m",
        "edgeseek",
        "run",
        str(target),
        "--prompt",
        "Hi",
        "--raw",
        "--max-tokens",
        "3",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("method", ["rtn", "awq", "gptq"])
def test_the_report_names_what_each_tensor_became(
    tmp_path: Path, source: Path, text: Path, method: str
) -> None:
    report = tmp_path / "report.json"
    found = quantize(
        tmp_path, source, "-o", tmp_path / "out", "--calibrate", text, "--method", method,
        "--quantize", "q4k", "--text", text, "--report", report,
    )  # fmt: skip
    assert found.code == 0, found.err
    made = json.loads(report.read_text())
    assert (made["method"], made["recipe"], made["format"]) == (method, "q4k", "package")
    assert made["mean_kl"] > 0
    assert made["bytes"] < made["source_bytes"]
    lines = {line["name"]: line for line in made["tensors"]}
    line = lines["layers.0.mlp.down.weight"]
    # 96 columns fill no block of 256.
    assert (line["wanted"], line["stored"]) == ("q4k", "q4z")
    assert 0 < line["relative_error"] < 0.2
    assert "layers.0.mlp.down.weight: " in found.err
    assert "do not fill the blocks of q4k; stored as q4z" in found.err


def test_the_page_holds_every_tensor_and_fetches_nothing(tmp_path: Path, source: Path) -> None:
    page = tmp_path / "report.html"
    assert quantize(tmp_path, source, "-o", tmp_path / "out", "--report", page).code == 0
    html = page.read_text()
    assert "layers.1.attn.q.weight" in html
    assert "http" not in html
    assert "<script" not in html


def test_what_is_in_the_wanted_scheme_is_kept_to_the_bit(tmp_path: Path, source: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert quantize(tmp_path, source, "-o", first, "--quantize", "q4").code == 0
    found = quantize(tmp_path, first, "-o", second, "--quantize", "q4")
    assert "15 of 15 matrices kept as stored" in found.out
    with open_package(first) as a, open_package(second) as b:
        for name, tensor in a.tensors.items():
            assert (tensor.data == b.tensors[name].data).all()


def test_a_recipe_file_decides(tmp_path: Path, source: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('default = "q4"\n[[rule]]\ntensors = "embed.*"\nscheme = "q8"\n')
    assert quantize(tmp_path, source, "-o", tmp_path / "out", "--quantize", recipe).code == 0
    with open_package(tmp_path / "out") as package:
        assert package.tensors["embed.weight"].scheme == "q8"
        assert package.tensors["layers.0.attn.q.weight"].scheme == "q4"
    recipe.write_text('default = "q4"\n[[rule]]\ntensors = "model.layers.*"\nscheme = "q8"\n')
    found = quantize(tmp_path, source, "-o", tmp_path / "out2", "--quantize", recipe)
    assert found.code == 2
    assert (
        "the recipe's 'model.layers.*' matches no matrix of hf; they are called like layers.0." in found.err
    )


def test_a_gguf_has_the_same_values_as_the_package(tmp_path: Path, source: Path, text: Path) -> None:
    words = ("--calibrate", text, "--quantize", "q4", "--text", text)
    a = quantize(tmp_path, source, "-o", tmp_path / "a", *words)
    b = quantize(tmp_path, source, "-o", tmp_path / "b.gguf", "--format", "gguf", *words)
    assert b.code == 0, b.err
    assert a.out.splitlines()[1] == b.out.splitlines()[1]


def test_onnx_is_written_with_rounding_of_ours(tmp_path: Path, source: Path, text: Path) -> None:
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason="needs pip install 'edgeseek[onnx]'")
    target = tmp_path / "graph"
    found = quantize(
        tmp_path, source, "-o", target, "--format", "onnx", "--calibrate", text, "--text", text,
        "--max-seq-len", 128,
    )  # fmt: skip
    assert found.code == 0, found.err
    assert (target / "model.onnx").is_file()
    assert "KL divergence 0." in found.out


def test_an_output_is_replaced_only_by_force_and_only_if_it_is_a_package(
    tmp_path: Path, source: Path
) -> None:
    target = tmp_path / "out"
    assert quantize(tmp_path, source, "-o", target).code == 0
    again = quantize(tmp_path, source, "-o", target, "--quantize", "q8")
    assert again.code == 1
    assert f"{target} exists already; choose another output, or replace it with --force" in again.err
    assert quantize(tmp_path, source, "-o", target, "--quantize", "q8", "--force").code == 0
    with open_package(target) as package:
        assert package.tensors["embed.weight"].scheme == "q8"
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("all of it")
    refused = quantize(tmp_path, source, "-o", precious, "--force")
    assert refused.code == 1
    assert "is no package; it is not replaced" in refused.err
    assert (precious / "thesis.txt").read_text() == "all of it"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "gptq"], "gptq needs to see the model's inputs; give a text with --calibrate"),
        (["--method", "best"], "--method 'best' is unknown; give rtn, awq, gptq"),
        (["--format", "tflite"], "--format 'tflite' is unknown; give package, gguf, onnx"),
        (["--observer", "percentile"], "give a text with --calibrate"),
        (["--observer", "median"], "--observer 'median' is unknown; give minmax, percentile"),
        (["--quantize", "int3"], "cannot quantize to 'int3'"),
        (["--bits", "3"], "int4 can use 4.5 to 8.5 bits a weight, not 3"),
        (["--max-seq-len", "9"], "--max-seq-len belongs to --format onnx"),
        (["--quantize", "q4", "--bits", "5"], "--bits belongs to --quantize int4 as a package or GGUF"),
        (["--format", "onnx", "--bits", "5"], "--bits belongs to --quantize int4 as a package or GGUF"),
        (
            ["--percentile", "99"],
            "--percentile belongs to --observer percentile; without",
        ),
        (["--calibrate-tokens", "600"], "--calibrate-tokens belongs to --calibrate"),
        (["--report", "no-such-folder/r.json"], "lies in a folder that does not exist; make it first"),
        (["--report", "r.txt"], "--report r.txt ends in neither .html nor .json"),
        (["--calibrate", "missing.txt"], "cannot read --calibrate missing.txt: No such file or directory"),
    ],
)
def test_options_that_contradict_are_refused_by_name(
    tmp_path: Path, source: Path, words: list[str], message: str
) -> None:
    found = quantize(tmp_path, source, "-o", tmp_path / "out", *words)
    assert found.code == 2
    assert message in found.error_line
    assert not (tmp_path / "out").exists()


def test_a_text_too_short_to_calibrate_on_leaves_nothing(tmp_path: Path, source: Path, text: Path) -> None:
    text.write_text("too short")
    before = beside(source)
    found = quantize(tmp_path, source, "-o", tmp_path / "out", "--calibrate", text)
    assert found.code == 2
    assert "the calibration text has" in found.err
    assert [name for name in beside(source) - before if not name.startswith("console")] == []


def test_an_output_inside_the_source_is_refused(tmp_path: Path, source: Path) -> None:
    found = quantize(tmp_path, source, "-o", source / "q")
    assert found.code == 2
    assert "lie in each other" in found.err


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "model.safetensors"),
        (
            lambda folder: (folder / "config.json").write_text(
                (folder / "config.json").read_text().replace("Llama", "Gpt9").replace('"llama"', '"gpt9"')
            ),
            "gpt9",
        ),
    ],
)
def test_sources_that_are_not_whole_are_refused_and_leave_nothing(
    tmp_path: Path, source: Path, spoil: object, message: str
) -> None:
    spoil(source)  # type: ignore[operator]
    found = quantize(tmp_path, source, "-o", tmp_path / "out")
    assert found.code == 1, found.err
    assert message in found.error_line.lower()
    assert not (tmp_path / "out").exists()
    assert not [name for name in beside(source) if name.startswith(".out")]


def test_ctrl_c_leaves_nothing(tmp_path: Path, text: Path) -> None:
    source = write(CASES["llama-untied"], tmp_path / "hf")
    text.write_text(TEXT * 200)
    before = beside(source)
    command = [
        sys.executable, "-m", "edgeseek", "quantize", str(source), "-o", str(tmp_path / "out"),
        "--calibrate", str(text), "--calibrate-tokens", "10000000", "--threads", "1",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "EDGESEEK_HOME": str(tmp_path / "h")},
    )
    deadline = time.monotonic() + 60
    while not any(name.startswith(".out") for name in beside(source)) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert beside(source) == before


@pytest.mark.parametrize("format_", ["gguf", "onnx"])
def test_a_family_that_the_format_has_no_form_for_is_refused_before_any_work(
    tmp_path: Path, text: Path, format_: str
) -> None:
    if format_ == "onnx":
        pytest.importorskip("onnx", reason="needs pip install 'edgeseek[onnx]'")
    source = write(CASES["deepseek-v2-experts"], tmp_path / "hf")
    found = quantize(tmp_path, source, "-o", tmp_path / "out", "--format", format_, "--calibrate", text)
    assert found.code == 1
    assert "deepseek_v2" in found.error_line
    assert "gptq needs" not in found.err


def test_a_recipe_file_is_not_taken_for_a_scheme_of_its_name_by_onnx(tmp_path: Path, source: Path) -> None:
    pytest.importorskip("onnx", reason="needs pip install 'edgeseek[onnx]'")
    recipe = tmp_path / "f16.toml"
    recipe.write_text('default = "q4"\n[[rule]]\ntensors = "embed.*"\nscheme = "q8"\n')
    found = quantize(tmp_path, source, "-o", tmp_path / "out", "--format", "onnx", "--quantize", recipe)
    assert found.code == 2
    assert "ONNX's operators cannot hold a recipe's mixture; give int4, f16 or f32" in found.error_line


def test_what_a_killed_replacement_left_is_ended_by_the_next_run(tmp_path: Path, source: Path) -> None:
    target = tmp_path / "out"
    assert quantize(tmp_path, source, "-o", target).code == 0
    # Killed between the two renames of a replacement: both packages are whole, none has the name.
    target.rename(tmp_path / ".out.old")
    shutil.copytree(tmp_path / ".out.old", tmp_path / ".out.new")
    refused = quantize(tmp_path, source, "-o", target)
    assert "exists already" in refused.err
    assert target.is_dir()
    assert [name for name in beside(source) if name.startswith(".out")] == []
