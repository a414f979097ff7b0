"""Which engines are measured, with what, and what happens when one of them fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import peer_runs
from benchmarks.peer_engines import LLAMACPP, OPENVINO, ORT, Contender, Installed, choose, contenders
from benchmarks.peers import named_versions, parse_arguments
from benchmarks.work import Result, Work

ALL = [Installed(engine, "python", "1.0") for engine in (LLAMACPP, OPENVINO, ORT)]


@pytest.fixture
def package(tmp_path: Path) -> str:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "weights").write_bytes(b"w")
    return str(folder)


def test_each_engine_comes_from_the_first_interpreter_that_has_it() -> None:
    found = {"one": {"openvino_genai": "2.0"}, "two": {"openvino_genai": "3.0", "llama_cpp": "0.3"}}
    assert choose(found) == [Installed(LLAMACPP, "two", "0.3"), Installed(OPENVINO, "one", "2.0")]


def test_llama_cpp_runs_both_ways_and_edgeseek_last(package: str) -> None:
    names = [entry.name for entry in contenders("m.gguf", package, package, ALL, Work("", 2))]
    assert names == [
        "llama.cpp",
        "llama.cpp, flash attention",
        "OpenVINO GenAI",
        "ONNX Runtime GenAI",
        "edgeseek",
    ]


def test_each_engine_gets_its_own_file_and_the_same_work(package: str) -> None:
    entries = {entry.name: entry for entry in contenders("m.gguf", package, package, ALL, Work("", 3))}
    assert entries["OpenVINO GenAI"].work == Work("m.gguf", 3)
    assert entries["ONNX Runtime GenAI"].work == entries["edgeseek"].work == Work(package, 3)
    assert entries["ONNX Runtime GenAI"].files == (Path(package) / "weights",)


def test_onnx_runtime_needs_a_folder_to_take_part(package: str) -> None:
    entries = list(contenders("m.gguf", package, None, ALL, Work("", 2)))
    assert "ONNX Runtime GenAI" not in [entry.name for entry in entries]
    assert named_versions(entries, ALL, "0.1") == {
        "llama.cpp": "1.0",
        "OpenVINO GenAI": "1.0",
        "edgeseek": "0.1",
    }


def test_folders_and_models_must_pair_up(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["a.gguf", "b.gguf", "--ort-model", "a"])
    assert "1 --ort-model for 2 models: give each its own, in order" in capsys.readouterr().err


def contender(name: str) -> Contender:
    return Contender(name, name, sys.executable, name, (), Work("m", 1), ())


def answer(python: str, arguments: Sequence[str]) -> str:
    if arguments[1] == "benchmarks.roofline":
        return "1e9\n"
    if arguments[1] == "broken":
        raise peer_runs.ChildError("broken failed:\nTraceback\nRuntimeError: unknown type")
    return json.dumps(Result(1.0, 1.0, None, 1, 1, 1).__dict__)


def test_a_peer_that_fails_is_left_out_with_its_reason() -> None:
    found = peer_runs.rounds([contender("broken"), contender("edgeseek")], 3, starts=False, run=answer)
    assert found.failures == {"broken": "RuntimeError: unknown type"}
    assert list(found.samples) == ["edgeseek"]
    assert len(found.samples["edgeseek"].results) == 3
    assert found.samples["edgeseek"].median("streams_tokens_per_s") is None


def test_edgeseek_failing_ends_the_run() -> None:
    def fail(python: str, arguments: Sequence[str]) -> str:
        if arguments[1] == "edgeseek":
            raise peer_runs.ChildError("out of memory")
        return answer(python, arguments)

    with pytest.raises(peer_runs.ChildError, match="out of memory"):
        peer_runs.rounds([contender("edgeseek")], 1, starts=False, run=fail)


def test_a_failing_process_is_reported_with_its_last_words() -> None:
    with pytest.raises(peer_runs.ChildError, match="no memory left"):
        peer_runs.child(sys.executable, ["-c", "raise SystemExit('no memory left')"])
