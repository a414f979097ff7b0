"""An exported folder says what it is, appears whole or not at all, and what cannot be written is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from edgeseek.checkpoints import open_checkpoint
from edgeseek.errors import (
    MissingExtraError,
    StorageError,
    TokenizerError,
    UnsupportedCheckpointError,
    UsageError,
)
from edgeseek.export.onnx import write_onnx
from tests.make_models.tiny import CASES, CHAT_TEMPLATE, write

CASE = CASES["qwen2-tied"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("onnx", reason="needs onnx: pip install 'edgeseek[onnx]'")
    return write(CASE, tmp_path / "hf")


def test_the_folder_holds_what_runtimes_need(folder: Path, tmp_path: Path) -> None:
    import onnx

    seen: list[tuple[int, int]] = []
    report = write_onnx(folder, tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    assert report.graph == tmp_path / "out" / "model.onnx"
    names = {path.name for path in report.graph.parent.iterdir()}
    assert names == {
        "model.onnx",
        "model.onnx.data",
        "genai_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "generation_config.json",
    }
    assert report.size == sum(path.stat().st_size for path in report.graph.parent.iterdir())
    assert seen[-1] == ((report.graph.parent / "model.onnx.data").stat().st_size,) * 2
    assert (report.graph.parent / "chat_template.jinja").read_text() == CHAT_TEMPLATE
    model = onnx.load(str(report.graph), load_external_data=False)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    with open_checkpoint(folder) as checkpoint:
        assert metadata["edgeseek.digest"] == checkpoint.digest()
    assert json.loads(metadata["edgeseek.config"])["architecture"] == "qwen2"
    inputs = {entry.name: entry.type.tensor_type.shape.dim for entry in model.graph.input}
    assert [entry.dim_param for entry in inputs["input_ids"]] == ["batch_size", "sequence_length"]
    assert [entry.dim_param or entry.dim_value for entry in inputs["past_key_values.1.value"]] == [
        "batch_size",
        2,
        "past_sequence_length",
        16,
    ]


def test_genai_config_names_the_graph_and_its_limits(folder: Path, tmp_path: Path) -> None:
    report = write_onnx(folder, tmp_path / "out" / "q.onnx", max_positions=100)
    assert report.graph.name == "q.onnx"
    config = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert config["model"]["context_length"] == config["search"]["max_length"] == 100
    assert config["model"]["decoder"]["filename"] == "q.onnx"
    assert config["model"]["type"] == "qwen2"
    assert (config["model"]["bos_token_id"], config["model"]["eos_token_id"]) == (0, 1)
    assert config["search"]["past_present_share_buffer"] is True


def test_a_family_without_this_graph_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    latent = write(CASES["deepseek-v2-plain-queries"], tmp_path / "latent")
    with pytest.raises(UnsupportedCheckpointError, match=r"deepseek_v2.*; these can: llama, qwen2, qwen3"):
        write_onnx(latent, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_replaced_by_force_only(folder: Path, tmp_path: Path) -> None:
    write_onnx(folder, tmp_path / "out", precision="f32")
    before = (tmp_path / "out" / "model.onnx").read_bytes()
    with pytest.raises(StorageError, match="exists already"):
        write_onnx(folder, tmp_path / "out")
    assert (tmp_path / "out" / "model.onnx").read_bytes() == before
    write_onnx(folder, tmp_path / "out", force=True)
    assert (tmp_path / "out" / "model.onnx").read_bytes() != before


def test_an_interruption_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_onnx(folder, tmp_path / "new" / "out", progress=stop)
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int3"}, "'int3' is unknown; give int4, f16, f32"),
        ({"opset": 17}, "opset 17 cannot be written; give 18 to"),
        ({"opset": 99}, "opset 99 cannot be written"),
        ({"max_positions": 513}, "takes 1 to 512 tokens; 513 were asked for"),
    ],
)
def test_a_bad_option_is_refused(
    options: dict[str, object], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        write_onnx(folder, tmp_path / "out", **options)  # type: ignore[arg-type]


def test_every_opset_passes_the_checker(folder: Path, tmp_path: Path) -> None:
    import onnx

    for opset in (18, 21, onnx.defs.onnx_opset_version()):
        report = write_onnx(folder, tmp_path / str(opset), opset=opset, precision="f32")
        assert onnx.load(str(report.graph)).opset_import[0].version == opset


def test_a_folder_without_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json"):
        write_onnx(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_onnx_the_install_line_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'edgeseek\[onnx\]'"):
        write_onnx(tmp_path, tmp_path / "out")
