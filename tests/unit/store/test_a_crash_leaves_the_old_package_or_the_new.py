"""Replacing and removing packages, cut off after any operation, with and without what was not synced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeseek.package import verify_package
from edgeseek.settings import Settings
from edgeseek.store import Store
from tests.make_models.tiny import CASES, write
from tests.unit.package.disks import Operation, PowerCut, Recorder, WatchedFiles


class Recorded:
    """The operations of a first pull, and of what is done after it."""

    def __init__(self, root: Path, then: Callable[[Store, str], object]) -> None:
        checkpoint = str(write(CASES["llama-tied"], root / "checkpoint"))
        recorder = Recorder()
        self.root = root / "disk"
        self.root.mkdir()
        store = Store(Settings(cache_dir=self.root, threads=1), WatchedFiles(recorder))
        self.name = store.pull(checkpoint).name
        self.first = len(recorder.operations)
        then(store, checkpoint)
        self.operations: list[Operation] = recorder.operations

    def store_after(self, count: int, into: Path, *, names_survive: bool) -> Store:
        """A store on the disk as a power cut after `count` operations leaves it."""
        PowerCut(self.root, self.operations[:count]).restore(into, names_survive=names_survive)
        return Store(Settings(cache_dir=into, threads=1))


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(
        tmp_path_factory.mktemp("replaced"), lambda store, checkpoint: store.pull(checkpoint, force=True)
    )


@pytest.fixture(scope="module")
def removed(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(
        tmp_path_factory.mktemp("removed"), lambda store, checkpoint: store.remove(store.models()[0].name)
    )


def leftovers(store: Store, root: Path) -> list[str]:
    """Hidden names beside the packages, locks and unfinished conversions left out."""
    names = [path.name for path in (root / "packages").iterdir()]
    return [name for name in names if name.startswith(".") and not name.endswith((".lock", ".partial"))]


@pytest.mark.parametrize("names_survive", [False, True])
def test_whenever_a_replacement_is_cut_off_there_is_one_whole_package(
    replaced: Recorded, tmp_path: Path, names_survive: bool
) -> None:
    kinds = [kind for kind, _, _ in replaced.operations[replaced.first :]]
    assert kinds[-4:] == ["rename", "rename", "sync_folder", "remove_tree"]
    for count in range(replaced.first, len(replaced.operations) + 1):
        root = tmp_path / str(count)
        store = replaced.store_after(count, root, names_survive=names_survive)
        assert store.pull(replaced.name).summary is None
        (model,) = store.models()
        assert (model.name, model.problem) == (replaced.name, None), count
        verify_package(model.path)
        assert leftovers(store, root) == []


@pytest.mark.parametrize("names_survive", [False, True])
def test_whenever_a_removal_is_cut_off_the_package_is_whole_or_gone(
    removed: Recorded, tmp_path: Path, names_survive: bool
) -> None:
    found = []
    for count in range(removed.first, len(removed.operations) + 1):
        root = tmp_path / str(count)
        store = removed.store_after(count, root, names_survive=names_survive)
        for model in store.models():
            verify_package(model.path)
        found.append(len(store.models()))
        assert leftovers(store, root) == []
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (1, 0)


def test_a_folder_that_lost_files_under_its_hidden_name_is_cleared(
    replaced: Recorded, tmp_path: Path
) -> None:
    """A power cut in the middle of deleting: the hidden folder is there and half empty."""
    store = replaced.store_after(replaced.first, tmp_path / "disk", names_survive=True)
    (model,) = store.models()
    half = model.path.with_name(f".{model.path.name}.old")
    half.mkdir()
    (half / "tokenizer.json").write_text("{}")
    assert [found.path for found in store.models()] == [model.path]
    assert not half.exists()
