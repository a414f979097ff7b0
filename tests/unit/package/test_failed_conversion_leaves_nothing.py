from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from edgeseek.errors import StorageError
from edgeseek.package import open_package, verify_package
from edgeseek.package.files import OsFiles
from tests.unit.package.disks import FailAt, Recorder, WatchedFiles
from tests.unit.package.tiny_checkpoints import folder, make_package

REPOSITORY = Path(__file__).parents[3]

#: Converts the tiny checkpoint to argv[1]; after as many pieces as argv[2] says a line, then waits for stdin.
CHILD = """
import sys
from pathlib import Path
from edgeseek.package import convert
from tests.unit.package.tiny_checkpoints import folder

pieces = 0

def progress(done, total):
    global pieces
    pieces += 1
    if pieces == int(sys.argv[2]):
        print("waiting", flush=True)
        sys.stdin.readline()

convert(folder(), Path(sys.argv[1]), name="tiny", tokenizer_json=b"{}", chat_template=None,
        generation_config={}, progress=progress)
"""


def child_environment() -> dict[str, str]:
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def start_child(target: Path, pieces: int) -> subprocess.Popen[str]:
    """A converting process that has written some pieces and waits."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(target), str(pieces)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "waiting\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        pipe.close()
    child.wait(timeout=60)


def all_operations(tmp_path: Path) -> list[str]:
    recorder = Recorder()
    make_package(folder(), tmp_path / "count", files=WatchedFiles(recorder))
    return [kind for kind, _, _ in recorder.operations]


@pytest.mark.parametrize("pieces", [1, 9, 20])
def test_a_killed_conversion_leaves_no_package_and_the_next_one_cleans_up(pieces, tmp_path):
    target = tmp_path / "tiny"
    child = start_child(target, pieces)
    assert not target.exists()
    child.kill()
    end(child)
    left = [path.name for path in tmp_path.iterdir()]
    assert len(left) == 1
    assert left[0].startswith(f".tiny.{child.pid}-")
    make_package(folder(), target)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    verify_package(target)


def test_a_living_writer_keeps_its_folder_and_the_second_to_finish_is_told(tmp_path):
    child = start_child(tmp_path / "tiny", 5)
    make_package(folder(), tmp_path / "other")
    assert any(path.name.endswith(".partial") for path in tmp_path.iterdir())
    make_package(folder(), tmp_path / "tiny")
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    end(child)
    assert child.returncode == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "tiny"]
    verify_package(tmp_path / "tiny")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, "no space left while writing .*free some space"),
        (errno.EACCES, "not allowed to write .*change the permissions"),
        (errno.EIO, "cannot write .*Input/output error"),
    ],
)
def test_a_failure_at_any_operation_is_named_and_leaves_nothing(code, message, tmp_path):
    kinds = all_operations(tmp_path)
    for number, kind in enumerate(kinds):
        place = tmp_path / f"at{number}"
        place.mkdir()
        files = WatchedFiles(FailAt(number, OSError(code, os.strerror(code))))
        with pytest.raises(StorageError, match=message):
            make_package(folder(), place / "tiny", files=files)
        # Once renamed the package is whole, even where the last sync fails.
        if number == len(kinds) - 1:
            assert kind == "sync_folder"
            verify_package(place / "tiny")
        else:
            assert list(place.iterdir()) == [], (number, kind)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit])
def test_an_interruption_passes_through_and_leaves_nothing(error, tmp_path):
    last = len(all_operations(tmp_path)) - 2
    for number in range(last):
        place = tmp_path / f"at{number}"
        place.mkdir()
        with pytest.raises(error):
            make_package(folder(), place / "tiny", files=WatchedFiles(FailAt(number, error())))
        assert list(place.iterdir()) == []


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path):
    recorder = Recorder()
    with pytest.raises(StorageError, match="takes 34 MB and .* has 20 MB free; free some space"):
        make_package(folder(), tmp_path / "tiny", files=WatchedFiles(recorder, free=20_000_000))
    assert recorder.operations == []


def test_the_operating_systems_own_limit_is_an_error_and_not_a_crash(tmp_path):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "tiny"), "0"],
        capture_output=True,
        text=True,
        env={**child_environment(), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=limit,
        timeout=60,
        check=False,
    )
    assert child.returncode == 1
    assert "StorageError: no space left while writing" in child.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_an_existing_target_is_refused_untouched(kind, tmp_path):
    target = tmp_path / "tiny"
    if kind == "folder":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to("nowhere")
    with pytest.raises(StorageError, match="exists already; remove it first"):
        make_package(folder(), target)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    assert kind != "file" or target.read_text() == "mine"


def test_a_parent_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        make_package(folder(), tmp_path / "file" / "tiny")


def test_missing_parents_are_made(tmp_path):
    make_package(folder(), tmp_path / "a" / "b" / "tiny")
    open_package(tmp_path / "a" / "b" / "tiny").close()


def test_a_folder_is_locked_by_one_holder_at_a_time(tmp_path):
    files = OsFiles()
    unlock = files.lock_folder(tmp_path)
    assert unlock is not None
    assert files.lock_folder(tmp_path) is None
    unlock()
    again = files.lock_folder(tmp_path)
    assert again is not None
    again()
