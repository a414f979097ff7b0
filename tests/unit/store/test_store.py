"""Importing once, finding, replacing and removing packages; a download goes when it is converted."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeseek.errors import StorageError, UnknownModelError, UnsupportedCheckpointError, UsageError
from edgeseek.settings import Settings
from edgeseek.store import Store
from tests.make_models.tiny import CASES, write
from tests.unit.checkpoints.fake_hub import FakeHub
from tests.unit.checkpoints.local_http import Server, serve

MODEL = CASES["llama-tied"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache", threads=1)


@pytest.fixture
def store(settings: Settings) -> Store:
    return Store(settings)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write(MODEL, tmp_path / "my model.v2")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeHub, Server]]:
    """A hub that holds the tiny model under any name, and its server."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = write(MODEL, tmp_path / "remote")
    hub = FakeHub({file.name: file.read_bytes() for file in folder.iterdir()})
    with serve(hub.answer) as server:
        yield hub, server


def visible(settings: Settings) -> list[str]:
    """Names in the packages folder, locks left out."""
    return sorted(p.name for p in settings.packages_dir.iterdir() if not p.name.endswith(".lock"))


def test_a_checkpoint_is_imported_once_and_then_found(store: Store, checkpoint: Path) -> None:
    stages: list[str] = []
    first = store.pull(str(checkpoint), progress=lambda stage, _done, _total: stages.append(stage))
    assert first.summary is not None
    assert set(stages) == {f"converting {first.name}"}
    again = store.pull(str(checkpoint))
    assert (again.summary, again.path) == (None, first.path)
    assert first.name.startswith("my-model-v2-")
    (model,) = store.models()
    assert (model.name, model.path, model.bytes) == (first.name, first.path, first.bytes)
    assert model.config is not None
    assert model.config.architecture == "llama"
    assert model.problem is None
    assert model.schemes == ("q8",)
    assert store.path_of(first.name.upper()) == first.path
    assert store.find(str(checkpoint)).name == first.name


def test_it_opens_by_name_and_by_path(store: Store, checkpoint: Path) -> None:
    pulled = store.pull(str(checkpoint))
    for model in (pulled.name, str(pulled.path)):
        with store.open(model) as package:
            assert package.name == pulled.name
            assert package.chat_template is not None
            assert package.generation_config["eos_token_id"] == [1]


def test_each_scheme_is_a_package_of_its_own(store: Store, checkpoint: Path) -> None:
    plain = store.pull(str(checkpoint))
    wide = store.pull(str(checkpoint), scheme="f32")
    assert wide.name == f"{plain.name}+f32"
    assert store.find(wide.name).schemes == ("f32",)
    assert [model.name for model in store.models()] == [plain.name, wide.name]
    # A pulled name leads back to its own package, scheme and all.
    assert store.pull(wide.name).path == wide.path


def test_force_imports_again_and_leaves_one_package(
    store: Store, settings: Settings, checkpoint: Path
) -> None:
    first = store.pull(str(checkpoint))
    inode = first.path.stat().st_ino
    second = store.pull(str(checkpoint), force=True)
    assert second.summary is not None
    assert second.path == first.path
    assert second.path.stat().st_ino != inode
    assert visible(settings) == [first.path.name]


def test_a_changed_checkpoint_is_imported_again_and_replaces_the_old_package(
    store: Store, settings: Settings, checkpoint: Path
) -> None:
    wide = store.pull(str(checkpoint), scheme="f32")
    first = store.pull(str(checkpoint))
    weights = checkpoint / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    second = store.pull(str(checkpoint))
    assert second.summary is not None
    assert second.name == first.name
    assert visible(settings) == sorted([second.path.name, wide.path.name])


def test_a_package_that_is_outdated_goes_even_if_the_import_that_replaced_it_could_not_remove_it(
    store: Store, settings: Settings, checkpoint: Path
) -> None:
    first = store.pull(str(checkpoint))
    os.utime(checkpoint / "model.safetensors", ns=(1, 1))
    kept = settings.cache_dir / "kept"
    shutil.copytree(first.path, kept)
    second = store.pull(str(checkpoint))
    kept.rename(first.path)
    assert store.pull(str(checkpoint)).summary is None
    assert visible(settings) == [second.path.name]


def test_a_failed_import_leaves_nothing_and_keeps_what_was_there(
    store: Store, settings: Settings, checkpoint: Path
) -> None:
    first = store.pull(str(checkpoint))
    config = checkpoint / "config.json"
    config.write_text(config.read_text().replace("LlamaForCausalLM", "UnheardOfModel"))
    with pytest.raises(UnsupportedCheckpointError, match="UnheardOfModel"):
        store.pull(str(checkpoint), force=True)
    assert visible(settings) == [first.path.name]


def test_removing_frees_the_name(store: Store, settings: Settings, checkpoint: Path) -> None:
    pulled = store.pull(str(checkpoint))
    store.remove(pulled.name)
    assert visible(settings) == []
    with pytest.raises(UnknownModelError, match="none was pulled yet"):
        store.remove(pulled.name)


def test_an_unknown_name_is_told_what_is_there(store: Store, checkpoint: Path) -> None:
    pulled = store.pull(str(checkpoint))
    with pytest.raises(UnknownModelError, match=f"'my-model'; here are {pulled.name}"):
        store.find("my-model")
    with pytest.raises(UnknownModelError):
        store.pull("no-such-model")


def test_a_package_is_not_imported_and_an_unknown_scheme_is_refused(store: Store, checkpoint: Path) -> None:
    pulled = store.pull(str(checkpoint))
    with pytest.raises(UsageError, match="is a package already"):
        store.pull(str(pulled.path), scheme="q4")
    with pytest.raises(UsageError, match="q3"):
        store.pull(str(checkpoint), scheme="q3")


@pytest.mark.parametrize("part", ["edgeseek.json", "model.safetensors"])
def test_a_damaged_package_is_listed_with_its_problem_and_can_be_removed(
    store: Store, settings: Settings, checkpoint: Path, part: str
) -> None:
    pulled = store.pull(str(checkpoint))
    (pulled.path / part).write_text("{")
    (model,) = store.models()
    # A manifest that cannot be read holds no name either: the folder's serves.
    assert model.name == (pulled.path.name if part == "edgeseek.json" else pulled.name)
    assert (model.config, model.schemes) == (None, ())
    assert model.problem is not None
    assert str(pulled.path) in model.problem
    store.remove(model.name)
    assert visible(settings) == []


@pytest.mark.parametrize("options", [{"scheme": "q4"}, {"force": True}])
def test_the_name_of_what_was_imported_from_a_path_is_not_enough_to_import_it_again(
    store: Store, checkpoint: Path, options: dict[str, Any]
) -> None:
    pulled = store.pull(str(checkpoint))
    with pytest.raises(UsageError, match="was imported from a path, which its package does not keep"):
        store.pull(pulled.name, **options)


def test_pulling_a_damaged_package_imports_it_again(store: Store, checkpoint: Path) -> None:
    pulled = store.pull(str(checkpoint))
    (pulled.path / "model.safetensors").write_text("{")
    with pytest.raises(UsageError, match="give the path of the checkpoint"):
        store.pull(pulled.name)
    again = store.pull(str(checkpoint))
    assert again.summary is not None
    assert again.path == pulled.path
    assert store.find(pulled.name).problem is None


def test_a_package_is_found_by_its_folder(store: Store, settings: Settings, checkpoint: Path) -> None:
    pulled = store.pull(str(checkpoint))
    assert store.find(str(pulled.path)).name == pulled.name
    store.remove(str(pulled.path))
    assert visible(settings) == []


def test_a_store_that_cannot_be_made_says_so(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        Store(Settings(cache_dir=tmp_path / "file")).pull(str(checkpoint))


@pytest.mark.parametrize("keep_source", [False, True])
def test_a_download_is_deleted_after_its_conversion_unless_kept(
    settings: Settings, keep_source: bool, hub: tuple[FakeHub, Server]
) -> None:
    stages: list[str] = []
    store = Store(settings.with_changes(hf_endpoint=hub[1].url))
    pulled = store.pull("org/model", keep_source=keep_source, progress=lambda stage, *_: stages.append(stage))
    assert pulled.name == "org/model"
    assert list(dict.fromkeys(stages)) == ["downloading org/model", "converting org/model"]
    assert any(settings.downloads_dir.rglob("model.safetensors")) is keep_source
    # What is there needs no network.
    store = Store(settings.with_changes(hf_endpoint="http://127.0.0.1:1"))
    assert store.pull("org/model").path == pulled.path
    with store.open("org/model") as package:
        assert np.prod(package.tensors["embed.weight"].shape) == 320 * MODEL.hidden_size


def test_a_download_that_was_to_be_kept_stays_when_another_scheme_is_imported(
    settings: Settings, hub: tuple[FakeHub, Server]
) -> None:
    store = Store(settings.with_changes(hf_endpoint=hub[1].url))
    store.pull("org/model", keep_source=True)
    store.pull("org/model", scheme="f16")
    assert any(settings.downloads_dir.rglob("model.safetensors"))


def test_two_schemes_of_one_source_are_imported_one_after_the_other(
    settings: Settings, hub: tuple[FakeHub, Server]
) -> None:
    """The first deletes the download that both share; the second must not be reading it then."""
    store = Store(settings.with_changes(hf_endpoint=hub[1].url))
    converting, go_on = threading.Event(), threading.Event()
    heard: list[str] = []

    def hold(stage: str, _done: int, _total: int | None) -> None:
        if stage.startswith("converting"):
            converting.set()
            go_on.wait(30)

    def second() -> None:
        store.pull("org/model", scheme="f16", progress=lambda stage, *_: note(stage))

    def note(stage: str) -> None:
        heard.append(stage)
        go_on.set()

    first = threading.Thread(target=lambda: store.pull("org/model", progress=hold))
    first.start()
    assert converting.wait(30)
    other = threading.Thread(target=second)
    other.start()
    first.join(60)
    other.join(60)
    assert heard[0] == "waiting for another import or removal"
    assert [model.name for model in store.models()] == ["org/model", "org/model+f16"]


def test_a_hub_name_leads_to_the_package_of_its_short_name(store: Store, checkpoint: Path) -> None:
    pulled = store.pull(str(checkpoint))
    manifest = pulled.path / "edgeseek.json"
    manifest.write_text(manifest.read_text().replace(pulled.name, "deepseek-r1-distill-qwen-1.5b"))
    for name in ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "DEEPSEEK-R1-distill-qwen-1.5b"):
        assert store.find(name).path == pulled.path


def test_a_model_that_cannot_run_is_refused_before_its_weights_arrive(
    settings: Settings, hub: tuple[FakeHub, Server]
) -> None:
    files, server = hub
    config = json.loads(files.files["config.json"])
    files.files["config.json"] = json.dumps(
        {**config, "rope_scaling": {"rope_type": "mrope", "factor": 8.0}}
    ).encode()
    store = Store(settings.with_changes(hf_endpoint=server.url))
    with pytest.raises(UnsupportedCheckpointError, match="unknown RoPE scaling 'mrope'"):
        store.pull("org/model")
    asked = [request.path.rpartition("/")[2] for request in server.requests if "/resolve/" in request.path]
    assert set(asked) == {"config.json"}


def test_a_checkpoint_is_had_as_it_was_published(hub: tuple[FakeHub, Server], tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path / "cache", hf_endpoint=hub[1].url, threads=1)
    store = Store(settings)
    pulled = store.pull("org/model")
    # The package is rounded to 8 bits, so it is not what was published.
    with store.checkpoint("org/model") as path:
        assert path != pulled.path
        published = (path / "model.safetensors").read_bytes()
    assert published == (write(MODEL, tmp_path / "again") / "model.safetensors").read_bytes()
    assert not path.exists()


def test_a_package_that_holds_every_value_stands_for_its_checkpoint(store: Store, checkpoint: Path) -> None:
    exact = store.pull(str(checkpoint), scheme="f32")
    with store.checkpoint(exact.name) as path:
        assert path == exact.path
    with store.checkpoint(str(checkpoint)) as path:
        assert path == checkpoint
    with pytest.raises(UnknownModelError), store.checkpoint("no-such-model"):
        pass
