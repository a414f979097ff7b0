"""A footprint says what an import will store, before anything is read, and what a package stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeseek.errors import CheckpointFormatError, DoesNotFitError, UnsupportedCheckpointError
from edgeseek.memory.boards import BOARDS, machine_for
from edgeseek.memory.footprint import footprint_of
from edgeseek.memory.planner import plan
from edgeseek.quantize.schemes import ROUNDING_SCHEMES, Scheme
from edgeseek.settings import Settings
from tests.make_models import tiny_experts
from tests.make_models.gguf_file import write_gguf
from tests.make_models.tiny import CASES, tokenizer_json, write
from tests.synthetic.models import converted, package_folder
from tests.unit.architectures.published_configs import PUBLISHED

MIB = 1 << 20


@pytest.mark.parametrize("name", ["llama-tied", "qwen2-untied", "deepseek-v2-experts"])
@pytest.mark.parametrize("scheme", ROUNDING_SCHEMES)
def test_a_folder_and_its_config_tell_what_the_import_stores(
    name: str, scheme: Scheme, tmp_path: Path
) -> None:
    folder = write(CASES[name], tmp_path / "folder")
    with package_folder(folder, tmp_path / "package", scheme) as package:
        expected = (package.weight_bytes, package.expert_bytes)
    whole, bare = footprint_of(folder, scheme=scheme), footprint_of(folder / "config.json", scheme=scheme)
    stored = footprint_of(tmp_path / "package")
    for found in (whole, stored):
        assert (found.weights.total, found.weights.experts) == expected
        assert found.by_scheme[scheme] == found.weights
    assert (bare.weights.total, bare.weights.experts) == expected
    assert whole.stored == stored.stored == ("q4+q8" if scheme == "q4" else scheme)


def test_a_gguf_is_counted_as_it_will_be_kept(tmp_path: Path) -> None:
    case = CASES["llama-tied"]
    file = write_gguf(case, tmp_path / "model.gguf")
    vocabulary = json.dumps(tokenizer_json()).encode()
    with converted(file, tmp_path / "package", vocabulary, None) as package:
        assert footprint_of(file).weights.total == package.weight_bytes


def test_experts_are_counted_apart(tmp_path: Path) -> None:
    folder = tiny_experts.write(tiny_experts.CASES["greedy"], tmp_path / "folder")
    found = footprint_of(folder)
    assert 0 < found.weights.experts < found.weights.total


def test_a_folder_without_weights_counts_as_its_config(tmp_path: Path) -> None:
    folder = write(CASES["llama-tied"], tmp_path / "folder")
    whole = footprint_of(folder)
    (folder / "model.safetensors").unlink()
    assert footprint_of(folder).weights == whole.weights


def test_a_file_that_is_no_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(CheckpointFormatError):
        footprint_of(tmp_path / "a.json")
    (tmp_path / "b.json").write_text('{"architectures": ["Mystery"]}')
    with pytest.raises(UnsupportedCheckpointError, match="Mystery"):
        footprint_of(tmp_path / "b.json")


def published(name: str, tmp_path: Path) -> Path:
    file = tmp_path / f"{name.replace('/', '--')}.json"
    file.write_text(json.dumps(dict(PUBLISHED[f"deepseek-ai/{name}"][0])))
    return file


@pytest.mark.parametrize(
    ("model", "scheme", "device", "fits"),
    [
        ("DeepSeek-R1-Distill-Qwen-1.5B", "q8", "rpi5-8g", True),
        ("DeepSeek-R1-Distill-Llama-8B", "q4", "rk3588-8g", True),
        ("DeepSeek-R1-Distill-Llama-8B", "q8", "rk3588-8g", False),
        ("DeepSeek-R1-Distill-Llama-8B", "q8", "orin-nx-16g", True),
    ],
)
def test_published_models_on_known_boards(
    model: str, scheme: Scheme, device: str, fits: bool, tmp_path: Path
) -> None:
    found = footprint_of(published(model, tmp_path), scheme=scheme)
    limits, threads = machine_for(device, Settings(cache_dir=tmp_path))
    arguments = {"limits": limits, "threads": threads, "context": 4096}
    if fits:
        made = plan(found.config, found.weights.total, **arguments)  # type: ignore[arg-type]
        assert made.decided_by == f"MemAvailable of {device}"
        assert made.reserve == max(BOARDS[device].total // 10, 800 * MIB)
    else:
        with pytest.raises(DoesNotFitError):
            plan(found.config, found.weights.total, **arguments)  # type: ignore[arg-type]
