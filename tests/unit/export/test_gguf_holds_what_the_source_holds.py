"""A written GGUF has the source's config, weights and tokenizer, for our reader and for the gguf package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from edgeseek.architectures import parse_config
from edgeseek.architectures.rope import inverse_frequencies
from edgeseek.checkpoints import open_checkpoint
from edgeseek.export.gguf import write_gguf
from edgeseek.export.gguf_types import GgufType, mixture
from edgeseek.export.source import ModelSource, PackageSource, open_source
from edgeseek.tokenizer import Tokenizer, build_tokenizer_json, chat_template_of, special_tokens_of
from tests.make_models.tiny import CASES, CHAT_TEMPLATE, write
from tests.synthetic.models import package_folder

#: GGUF has no words for the others: see test_failed_export_leaves_nothing.py.
WRITABLE = [
    name
    for name in CASES
    if not name.startswith("deepseek") and not name.endswith(("dynamic-rope", "window", "qwen3-biases"))
]
TEXTS = ("Hello world, it's 2024!", "def f(x):\n    return x\n", "你好 grüße 😀", "<|user|>Hi<|assistant|>")


def export(source: Path | ModelSource, target: Path, kind: str) -> Path:
    if isinstance(source, Path):
        with open_source(source) as opened:
            return export(opened, target, kind)
    write_gguf(source, target, types=mixture(kind, source.config))
    return target


def weights(path: Path) -> dict[str, np.ndarray]:
    with open_source(path) as source:
        return {
            name: tensor.floats(0, tensor.shape[0] if len(tensor.shape) == 2 else 1).reshape(tensor.shape)
            for name, tensor in source.tensors.items()
        }


@pytest.mark.parametrize("name", WRITABLE)
def test_at_full_precision_config_and_weights_are_the_source_s(name: str, tmp_path: Path) -> None:
    folder = write(CASES[name], tmp_path / "folder")
    path = export(folder, tmp_path / "model.gguf", "F32")
    with open_checkpoint(folder) as before, open_checkpoint(path) as after:
        wanted, found = parse_config(before), parse_config(after)
    same = {"rope": wanted.rope, "rms_eps": wanted.rms_eps}
    assert found.with_changes(**same) == wanted
    assert found.rms_eps == pytest.approx(wanted.rms_eps, rel=1e-6)
    for context in (16, found.max_context):
        np.testing.assert_allclose(
            inverse_frequencies(found.rope, found.rotary_dim, context),
            inverse_frequencies(wanted.rope, wanted.rotary_dim, context),
            rtol=1e-6,
        )
    assert found.rope.attention_factor == pytest.approx(wanted.rope.attention_factor, rel=1e-6)
    source, written = weights(folder), weights(path)
    assert written.keys() == source.keys()
    for tensor, values in source.items():
        np.testing.assert_array_equal(written[tensor], values, err_msg=tensor)


@pytest.mark.parametrize("name", ["llama-tied", "qwen2-untied"])
def test_the_gguf_package_reads_it(name: str, tmp_path: Path) -> None:
    folder = write(CASES[name], tmp_path / "folder")
    reader = gguf.GGUFReader(export(folder, tmp_path / "model.gguf", "F16"))
    assert reader.fields["general.architecture"].contents() == name.split("-", maxsplit=1)[0]
    assert reader.fields["tokenizer.ggml.pre"].contents() == "gpt-2"
    assert reader.fields["tokenizer.ggml.bos_token_id"].contents() == 0
    assert reader.fields["tokenizer.ggml.eos_token_id"].contents() == 1
    assert reader.fields["tokenizer.chat_template"].contents() == CHAT_TEMPLATE
    assert reader.fields["tokenizer.ggml.token_type"].types[1] == gguf.GGUFValueType.INT32
    query = next(tensor for tensor in reader.tensors if tensor.name == "blk.0.attn_q.weight")
    assert query.tensor_type == gguf.GGMLQuantizationType.F16
    stored = np.asarray(query.data, np.float32)
    source = weights(folder)["layers.0.attn.q.weight"].astype(np.float16).astype(np.float32)
    if name.startswith("llama"):
        # llama.cpp rotates neighbours: row 2 j + h of a head is our row h · 8 + j.
        source = source.reshape(4, 2, 8, -1).transpose(0, 2, 1, 3).reshape(source.shape)
    np.testing.assert_array_equal(stored, source)


@pytest.mark.parametrize(("kind", "most"), [("Q8_0", 0.006), ("Q5_1", 0.04), ("Q4_1", 0.08), ("Q4_0", 0.1)])
@pytest.mark.parametrize("name", ["llama-biases", "qwen2-tied"])
def test_rounded_weights_are_within_the_type_s_error(
    name: str, kind: str, most: float, tmp_path: Path
) -> None:
    folder = write(CASES[name], tmp_path / "folder")
    report = write_gguf(folder, tmp_path / "model.gguf", types=lambda *_: kind)  # type: ignore[arg-type]
    source, written = weights(folder), weights(tmp_path / "model.gguf")
    for tensor in report.tensors:
        difference = np.linalg.norm(written[tensor.name] - source[tensor.name])
        assert difference / np.linalg.norm(source[tensor.name]) == pytest.approx(
            tensor.sums.relative_rms, rel=1e-4, abs=1e-7
        )
        assert tensor.sums.relative_rms <= (0.0 if tensor.kept else most)
        assert tensor.kept == (len(tensor.shape) == 1)


def test_what_is_stored_in_the_wanted_type_is_kept_to_the_bit(tmp_path: Path) -> None:
    folder = write(CASES["llama-tied"], tmp_path / "folder")
    first = export(folder, tmp_path / "first.gguf", "Q8_0")
    with open_source(first) as source:
        report = write_gguf(source, tmp_path / "second.gguf", types=lambda *_: "Q8_0")
    assert all(tensor.kept for tensor in report.tensors)
    values = sum(tensor.size for tensor in report.tensors)
    assert (tmp_path / "second.gguf").read_bytes()[-values:] == first.read_bytes()[-values:]


def test_a_package_is_written_as_it_is(tmp_path: Path) -> None:
    folder = write(CASES["llama-untied"], tmp_path / "folder")
    with package_folder(folder, tmp_path / "package", "q4") as package:
        source = PackageSource(package)
        types: dict[str, GgufType] = {"q4": "Q4_0", "q8": "Q8_0"}
        report = write_gguf(
            source,
            tmp_path / "model.gguf",
            types=lambda name, _: types[package.tensors[name].scheme],
        )
        # 200 columns do not fill blocks of 32, so the feed-forward's last matrix is no Q4_0.
        assert {tensor.name for tensor in report.narrowed} == {
            f"layers.{i}.mlp.down.weight" for i in range(3)
        }
        assert all(tensor.kept for tensor in report.tensors if tensor not in report.narrowed)
        written = weights(tmp_path / "model.gguf")
        for name, values in weights(tmp_path / "package").items():
            if "mlp.down" not in name:
                np.testing.assert_array_equal(written[name], values, err_msg=name)


@pytest.mark.parametrize("name", ["llama-tied", "llama-llama3-rope", "llama-longrope-rope", "qwen3-tied"])
def test_a_gguf_keeps_its_own_metadata(name: str, tmp_path: Path) -> None:
    folder = write(CASES[name], tmp_path / "folder")
    first = export(folder, tmp_path / "first.gguf", "F16")
    second = export(first, tmp_path / "second.gguf", "Q8_0")
    with open_checkpoint(first) as before, open_checkpoint(second) as after:
        changed = {key for key in before.raw_config if before.raw_config[key] != after.raw_config.get(key)}
        assert changed == {"general.file_type"}
        assert after.raw_config.keys() == before.raw_config.keys()
        assert after.text_assets.gguf_metadata == before.text_assets.gguf_metadata
        assert list(after.tensors) == list(before.tensors)
        assert parse_config(after) == parse_config(before)


@pytest.mark.parametrize("name", ["llama-tied", "qwen2-untied"])
def test_the_tokenizer_encodes_alike(name: str, tmp_path: Path) -> None:
    folder = write(CASES[name], tmp_path / "folder")
    path = export(folder, tmp_path / "model.gguf", "F16")
    with open_checkpoint(folder) as before, open_checkpoint(path) as after:
        ours, theirs = (Tokenizer.from_json(build_tokenizer_json(one.text_assets)) for one in (before, after))
        assert chat_template_of(after.text_assets) == chat_template_of(before.text_assets)
        assert special_tokens_of(after.text_assets) == special_tokens_of(before.text_assets)
    for text in TEXTS:
        assert theirs.encode(text) == ours.encode(text)
        assert theirs.encode_prompt(text) == ours.encode_prompt(text)


def test_importance_is_asked_for_by_name_and_changes_only_that_matrix(tmp_path: Path) -> None:
    folder = write(CASES["llama-untied"], tmp_path / "folder")
    asked = []

    def importance(name: str) -> np.ndarray | None:
        asked.append(name)
        return np.where(np.arange(96) < 16, 50.0, 0.1) if name == "layers.1.attn.q.weight" else None

    write_gguf(folder, tmp_path / "plain.gguf", types=lambda *_: "Q4_0", importance=lambda _: None)
    write_gguf(folder, tmp_path / "weighed.gguf", types=lambda *_: "Q4_0", importance=importance)
    source, plain, weighed = (weights(tmp_path / n) for n in ("folder", "plain.gguf", "weighed.gguf"))
    assert "layers.0.mlp.gate.weight" in asked
    assert "final_norm.weight" not in asked
    changed = [name for name in plain if (plain[name] != weighed[name]).any()]
    assert changed == ["layers.1.attn.q.weight"]
    lost = [np.square(w[changed[0]] - source[changed[0]])[:, :16].sum() for w in (weighed, plain)]
    assert lost[0] < 0.95 * lost[1]


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    report = write_gguf(
        write(CASES["llama-tied"], tmp_path / "folder"),
        tmp_path / "model.gguf",
        types=lambda *_: "Q4_0",
        progress=lambda done, total: heard.append((done, total)),
    )
    assert report.size == (tmp_path / "model.gguf").stat().st_size
    assert {total for _, total in heard} == {report.size}
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert 0.95 * report.size < heard[-1][0] <= report.size
