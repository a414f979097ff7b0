"""Every prefix of what the writer does to a disk, replayed without what was not synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeseek.errors import PackageError
from edgeseek.package import open_package, verify_package
from tests.unit.package.disks import Operation, PowerCut, Recorder, WatchedFiles
from tests.unit.package.tiny_checkpoints import folder, make_package


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> tuple[Path, list[Operation]]:
    """The operations of a conversion into the new folders cache/models."""
    root = tmp_path_factory.mktemp("disk")
    recorder = Recorder()
    make_package(folder(), root / "cache" / "models" / "tiny", files=WatchedFiles(recorder))
    return root, recorder.operations


def state_after(root: Path, operations: list[Operation], into: Path, **how: bool) -> str:
    """ "absent", "whole", or what is wrong with the package that a power cut leaves."""
    PowerCut(root, operations).restore(into, **how)
    target = into / "cache" / "models" / "tiny"
    if not target.exists():
        return "absent"
    try:
        verify_package(target)
    except PackageError as error:
        return str(error)
    return "whole"


@pytest.mark.parametrize(
    "how",
    [
        {"names_survive": True},
        {"names_survive": True, "torn": True},
        {"names_survive": False},
    ],
)
def test_every_prefix_gives_the_whole_package_or_none(recorded, how, tmp_path):
    root, operations = recorded
    states = [
        state_after(root, operations[:count], tmp_path / str(count), **how)
        for count in range(len(operations) + 1)
    ]
    first_whole = states.index("whole")
    assert states == ["absent"] * first_whole + ["whole"] * (len(states) - first_whole)
    assert states[-1] == "whole"


@pytest.mark.parametrize("lost", ["sync", "sync_folder"])
def test_the_replay_notices_a_sync_that_is_left_out(recorded, lost, tmp_path):
    root, operations = recorded
    weaker = [operation for operation in operations if operation[0] != lost]
    states = {
        state_after(root, weaker[:count], tmp_path / f"{count}{survive}", names_survive=survive)
        for count in range(len(weaker) + 1)
        for survive in (True, False)
    }
    final = state_after(root, weaker, tmp_path / "final", names_survive=False)
    assert states - {"absent", "whole"} or final == "absent"


@pytest.mark.parametrize("count", [5, 20, 40])
def test_the_next_conversion_clears_what_a_power_cut_left(recorded, count, tmp_path):
    root, operations = recorded
    PowerCut(root, operations[:count]).restore(tmp_path / "disk", names_survive=True)
    models = tmp_path / "disk" / "cache" / "models"
    assert [path.name.endswith(".partial") for path in models.iterdir()] == [True]
    make_package(folder(), models / "tiny")
    assert [path.name for path in models.iterdir()] == ["tiny"]
    open_package(models / "tiny").close()
