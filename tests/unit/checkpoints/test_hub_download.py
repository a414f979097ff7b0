"""Pulling from a hub: the files a checkpoint needs, verified, gone on with after a break, errors named."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from edgeseek.checkpoints import fetch, open_checkpoint
from edgeseek.checkpoints.catalogue import CatalogueEntry, HubSource, resolve
from edgeseek.errors import (
    CheckpointFormatError,
    DownloadError,
    MissingExtraError,
    StorageError,
    UnknownModelError,
    UnsupportedCheckpointError,
)
from tests.unit.checkpoints import gguf_bytes
from tests.unit.checkpoints.fake_hub import COMMIT, FakeHub, range_reply
from tests.unit.checkpoints.local_http import Reply, Server, serve

pytest.importorskip("huggingface_hub")

WEIGHTS = save({"w": np.arange(50_000, dtype=np.float32).reshape(500, 100)})
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
SINGLE = {
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "tokenizer_config.json": b'{"chat_template": "inside"}',
    "chat_template.jinja": b"beside",
    "model.safetensors": WEIGHTS,
    "README.md": b"# not needed",
    "pytorch_model.bin": b"not needed" * 200,
    "onnx/model.onnx": b"not needed" * 200,
}
SHARDED = {
    "config.json": b"{}",
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}).encode(),
    SHARDS[0]: save({"a": np.ones(1000, np.float32)}),
    SHARDS[1]: save({"b": np.zeros(1000, np.float32)}),
    "consolidated.safetensors": b"not needed" * 200,
}
#: The client hands on chunks of 10 MiB, so a break is seen only in a larger file.
LARGE = {"config.json": b"{}", "model.safetensors": save({"w": np.arange(3 << 20, dtype=np.float32)})}
CUT = 11 << 20
GGUF = gguf_bytes.small().to_bytes()


@dataclass(frozen=True)
class Settings:
    hf_endpoint: str
    hf_token: str | None = None


@contextmanager
def serving(hub: FakeHub) -> Iterator[Server]:
    with serve(hub.answer) as server:
        yield server


def _entry(name: str = "org/model") -> CatalogueEntry:
    entry = resolve(name)
    assert isinstance(entry.source, HubSource)
    return entry


def _pull(server: Server, into: Path, name: str = "org/model", token: str | None = None) -> Path:
    return fetch(_entry(name), into, settings=Settings(server.url, token))


def _visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def _gets(server: Server, name: str) -> list[str | None]:
    """The Range headers of the requests for a file, in order."""
    return [
        request.headers.get("range")
        for request in server.requests
        if request.method == "GET" and request.path.endswith("/" + name)
    ]


def _start(asked: str | None) -> int:
    """First byte of a Range header."""
    return int((asked or "bytes=0-").removeprefix("bytes=").removesuffix("-"))


def test_only_the_needed_files_of_a_pinned_revision_arrive(tmp_path: Path) -> None:
    with serving(FakeHub(SINGLE)) as server:
        path = _pull(server, tmp_path / "into")
        assert all(COMMIT in request.path for request in server.requests if "/resolve/" in request.path)
    assert path == tmp_path / "into"
    needed = set(SINGLE) - {"README.md", "pytorch_model.bin", "onnx/model.onnx"}
    assert _visible(path) == needed
    assert all((path / name).read_bytes() == SINGLE[name] for name in needed)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.tensors["w"].shape == (500, 100)
        assert checkpoint.text_assets.chat_template == "beside"


def test_the_shards_of_the_index_arrive_and_no_others(tmp_path: Path) -> None:
    with serving(FakeHub(SHARDED)) as server:
        path = _pull(server, tmp_path)
    assert _visible(path) == set(SHARDED) - {"consolidated.safetensors"}
    with open_checkpoint(path) as checkpoint:
        assert set(checkpoint.tensors) == {"a", "b"}


def test_a_shard_that_the_repository_lacks_is_named(tmp_path: Path) -> None:
    files = {name: data for name, data in SHARDED.items() if name != SHARDS[1]}
    with (
        serving(FakeHub(files)) as server,
        pytest.raises(CheckpointFormatError, match=rf"org/model lacks the shard {SHARDS[1]}"),
    ):
        _pull(server, tmp_path)


def test_progress_counts_every_byte_once_and_never_falls(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    with serving(FakeHub(SHARDED)) as server:
        fetch(
            _entry(),
            tmp_path,
            settings=Settings(server.url),
            progress=lambda done, total: seen.append((done, total)),
        )
    total = sum(len(data) for name, data in SHARDED.items() if name != "consolidated.safetensors")
    assert seen[-1] == (total, total)
    assert seen == sorted(seen, key=lambda item: item[0])
    assert {item[1] for item in seen} == {total}


def test_a_cut_connection_is_taken_up_where_it_broke(tmp_path: Path) -> None:
    seen: list[int] = []
    with serving(FakeHub(LARGE, cut={"model.safetensors": CUT})) as server:
        fetch(
            _entry(), tmp_path, settings=Settings(server.url), progress=lambda done, total: seen.append(done)
        )
        first, second = _gets(server, "model.safetensors")
    assert first is None
    assert 0 < _start(second) <= CUT
    assert (tmp_path / "model.safetensors").read_bytes() == LARGE["model.safetensors"]
    assert seen == sorted(seen)
    assert seen[-1] == sum(map(len, LARGE.values()))


def test_a_failed_pull_leaves_no_file_under_its_name_and_the_next_goes_on(tmp_path: Path) -> None:
    hub = FakeHub(LARGE, cut={"model.safetensors": CUT}, then_status={"model.safetensors": 503})
    with serving(hub) as server:
        with pytest.raises(
            DownloadError, match=r"cannot download model\.safetensors of org/model .*503.*goes on"
        ):
            _pull(server, tmp_path)
        assert _visible(tmp_path) == {"config.json"}
        (partial,) = tmp_path.glob(".*.partial")
        received = partial.stat().st_size
        assert 0 < received <= CUT
        hub.mend()
        server.requests.clear()
        _pull(server, tmp_path)
        assert _gets(server, "model.safetensors") == [f"bytes={received}-"]
        assert _gets(server, "config.json") == []
    assert (tmp_path / "model.safetensors").read_bytes() == LARGE["model.safetensors"]
    assert not list(tmp_path.glob(".*.partial"))


def test_a_server_that_ignores_ranges_sends_the_file_anew(tmp_path: Path) -> None:
    seen: list[int] = []
    with serving(FakeHub(LARGE, cut={"model.safetensors": CUT}, ignore_range=True)) as server:
        fetch(
            _entry(), tmp_path, settings=Settings(server.url), progress=lambda done, total: seen.append(done)
        )
    assert (tmp_path / "model.safetensors").read_bytes() == LARGE["model.safetensors"]
    assert seen[-1] == sum(map(len, LARGE.values()))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_other_bytes_than_listed_are_refused_and_the_next_pull_starts_anew(tmp_path: Path, name: str) -> None:
    hub = FakeHub(SINGLE, instead={name: SINGLE[name][:-1] + b"?"})
    with serving(hub) as server:
        with pytest.raises(DownloadError, match=rf"{name} of org/model arrived .* another digest"):
            _pull(server, tmp_path)
        assert name not in _visible(tmp_path)
        hub.mend()
        _pull(server, tmp_path)
    assert (tmp_path / name).read_bytes() == SINGLE[name]


def test_a_complete_file_is_kept_and_a_damaged_one_fetched_again(tmp_path: Path) -> None:
    with serving(FakeHub(SINGLE)) as server:
        _pull(server, tmp_path)
        (tmp_path / "model.safetensors").write_bytes(WEIGHTS[:-1] + b"?")
        server.requests.clear()
        _pull(server, tmp_path)
        assert _gets(server, "model.safetensors") == [None]
        assert _gets(server, "tokenizer.json") == []
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


def test_a_disk_that_is_too_small_is_refused_before_the_download(tmp_path: Path) -> None:
    hub = FakeHub(SINGLE, claimed_size={"model.safetensors": 10**18})
    with serving(hub) as server:
        with pytest.raises(StorageError, match=r"org/model needs 1000000000000 MB .* and \d+ MB are free"):
            _pull(server, tmp_path)
        assert _gets(server, "model.safetensors") == []


def test_a_write_that_fails_is_a_storage_error_not_the_network(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serving(FakeHub(LARGE)) as server:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        try:
            with pytest.raises(StorageError, match=r"cannot write .*partial: File too large"):
                _pull(server, tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        _pull(server, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == LARGE["model.safetensors"]


def test_the_token_is_shown_to_the_hub_and_not_to_where_it_redirects(tmp_path: Path) -> None:
    def elsewhere(request):
        return range_reply(request, WEIGHTS, {})

    with serve(elsewhere) as other:
        hub = FakeHub(SINGLE, token="secret", redirect={"model.safetensors": f"{other.url}/blob"})
        with serving(hub) as server:
            _pull(server, tmp_path, token="secret")
        assert [request.path for request in other.requests] == ["/blob"]
        assert "authorization" not in other.requests[0].headers
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


#: Pulls org/model of http://hub.invalid, which exists nowhere, into argv[1].
PULL_FROM_NOWHERE = """
import sys
from pathlib import Path
from edgeseek.checkpoints import fetch
from edgeseek.checkpoints.catalogue import resolve
from edgeseek.settings import Settings

settings = Settings(Path("unused"), hf_endpoint="http://hub.invalid")
fetch(resolve("org/model"), Path(sys.argv[1]), settings=settings)
"""


def test_a_proxy_of_the_environment_is_used(tmp_path: Path) -> None:
    """In a process of its own, since the client looks at the environment once."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    with serving(FakeHub(SINGLE)) as proxy:
        subprocess.run(
            [sys.executable, "-c", PULL_FROM_NOWHERE, str(tmp_path / "into")],
            env={**kept, "HTTP_PROXY": proxy.url, "http_proxy": proxy.url},
            check=True,
        )
        assert all(request.path.startswith("http://hub.invalid/") for request in proxy.requests)
    assert (tmp_path / "into" / "model.safetensors").read_bytes() == WEIGHTS


def test_a_repository_that_is_missing_or_private_is_an_unknown_model(tmp_path: Path) -> None:
    with (
        serving(FakeHub(SINGLE)) as server,
        pytest.raises(UnknownModelError, match=r"no model 'org/other'.*HF_TOKEN"),
    ):
        _pull(server, tmp_path, "org/other")
    with (
        serving(FakeHub(SINGLE, token="secret")) as server,
        pytest.raises(UnknownModelError, match="or it is private; check the name, or set HF_TOKEN"),
    ):
        _pull(server, tmp_path, token="wrong")


def test_a_gated_repository_says_what_to_accept(tmp_path: Path) -> None:
    with (
        serving(FakeHub(SINGLE, gated=True)) as server,
        pytest.raises(
            DownloadError, match=rf"org/model is gated: accept its terms at {server.url}/org/model"
        ),
    ):
        _pull(server, tmp_path)
    assert _visible(tmp_path) == set()


def test_a_revision_is_asked_for_and_a_missing_one_named(tmp_path: Path) -> None:
    with serving(FakeHub(SINGLE)) as server:
        _pull(server, tmp_path, "org/model@refs/pr/1")
        assert "/revision/refs%2Fpr%2F1" in server.requests[0].path
        with pytest.raises(UnknownModelError, match="org/model has no revision 'gone'"):
            _pull(server, tmp_path, "org/model@gone")


def test_a_server_that_is_no_hub_is_named(tmp_path: Path) -> None:
    for body in (b"<html>sign in</html>", b"[]", b"{}", b'"x"'):
        hub = FakeHub(SINGLE, api_reply=Reply(body=body))
        with serving(hub) as server, pytest.raises(DownloadError, match=r"org/model|check HF_ENDPOINT"):
            _pull(server, tmp_path)


def test_an_endpoint_that_does_not_answer_is_a_download_error(tmp_path: Path) -> None:
    with serve(FakeHub(SINGLE).answer) as server:
        pass
    with pytest.raises(
        DownloadError, match=rf"cannot download the list of files of org/model from {server.url}"
    ):
        _pull(server, tmp_path)


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'edgeseek\[hub\]'"):
        fetch(_entry(), tmp_path, settings=Settings("http://127.0.0.1:9"))


def test_a_named_gguf_comes_alone(tmp_path: Path) -> None:
    files = {"model-Q4_K_M.gguf": GGUF, "model-Q8_0.gguf": GGUF + b"x", "README.md": b"x"}
    for name in ("org/model:model-Q4_K_M.gguf", "org/model:Q4_K_M", "hf.co/org/model:q4_k_m"):
        into = tmp_path / name.replace("/", "-")
        with serving(FakeHub(files)) as server:
            path = _pull(server, into, name)
        assert path == into / "model-Q4_K_M.gguf"
        assert _visible(into) == {"model-Q4_K_M.gguf"}
        with open_checkpoint(path) as checkpoint:
            assert set(checkpoint.tensors) == {"norm.weight", "mat.weight", "half.weight"}


def test_a_repository_of_several_ggufs_lists_them(tmp_path: Path) -> None:
    files = {"a-Q4_K_M.gguf": b"x" * 2_000_000, "sub/a-Q8_0.gguf": b"x" * 4_000_000}
    listed = r"a-Q4_K_M\.gguf 2 MB, sub/a-Q8_0\.gguf 4 MB"
    with serving(FakeHub(files)) as server:
        with pytest.raises(UnknownModelError, match=rf"2 GGUF files; name one, .*org/model:a-Q4.*{listed}"):
            _pull(server, tmp_path)
        with pytest.raises(
            UnknownModelError, match=rf"holds no GGUF file called 'Q5_K_M'; name one of {listed}"
        ):
            _pull(server, tmp_path, "org/model:Q5_K_M")
    assert _visible(tmp_path) == set()


def test_the_only_gguf_needs_no_name(tmp_path: Path) -> None:
    with serving(FakeHub({"sub/only.gguf": GGUF})) as server:
        assert _pull(server, tmp_path) == tmp_path / "only.gguf"


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        (
            ["config.json", "pytorch_model.bin"],
            UnsupportedCheckpointError,
            r"pytorch_model\.bin, a pickle.*refs/pr",
        ),
        (["README.md"], CheckpointFormatError, "neither safetensors nor GGUF"),
        (["model.safetensors"], CheckpointFormatError, r"holds no config\.json"),
        (
            ["config.json", "a.safetensors", "b.safetensors"],
            CheckpointFormatError,
            "2 safetensors files and no",
        ),
        (["m-00001-of-00002.gguf"], UnsupportedCheckpointError, "one of 2 parts"),
    ],
)
def test_a_repository_without_a_usable_model_is_named(tmp_path: Path, files, error, message) -> None:
    with serving(FakeHub(dict.fromkeys(files, b"x"))) as server, pytest.raises(error, match=message):
        _pull(server, tmp_path)
