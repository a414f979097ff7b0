"""One repository of the hub, served over the paths and headers that huggingface_hub speaks."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from tests.unit.checkpoints.local_http import Reply, Request

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LFS_BYTES = 1000


@dataclass
class FakeHub:
    """`files` of `repo`; those of at least LFS_BYTES are LFS files. The other fields are faults."""

    files: dict[str, bytes]
    repo: str = "org/model"
    #: A token that must be shown, as for a private repository.
    token: str | None = None
    gated: bool = False
    #: File name -> bytes after which the connection breaks, once.
    cut: dict[str, int] = field(default_factory=dict)
    #: File name -> status that follows a cut, until `mend` is called.
    then_status: dict[str, int] = field(default_factory=dict)
    #: File name -> bytes delivered instead of those listed.
    instead: dict[str, bytes] = field(default_factory=dict)
    #: File name -> other URL that it is delivered from.
    redirect: dict[str, str] = field(default_factory=dict)
    ignore_range: bool = False
    #: File name -> size that the listing claims.
    claimed_size: dict[str, int] = field(default_factory=dict)
    api_reply: Reply | None = None
    _cut_done: set[str] = field(default_factory=set)

    def mend(self) -> None:
        """End the faults."""
        self.cut, self.then_status, self.instead = {}, {}, {}

    def answer(self, request: Request) -> Reply:
        """The reply to one request."""
        url = urlsplit(request.path)
        path = unquote(url.path)
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return _error(401, "RepoNotFound", "Repository not found")
        if path.startswith("/api/models/"):
            return self._info(path.removeprefix("/api/models/"), parse_qs(url.query))
        prefix = f"/{self.repo}/resolve/"
        if path.startswith(prefix):
            revision, _, name = path.removeprefix(prefix).partition("/")
            return self._file(request, revision, name)
        return _error(404, "RepoNotFound", "Repository not found")

    def _info(self, path: str, query: dict[str, list[str]]) -> Reply:
        if self.api_reply is not None:
            return self.api_reply
        repo, _, revision = path.partition("/revision/")
        if repo != self.repo:
            return _error(404, "RepoNotFound", "Repository not found")
        if revision not in ("", "main", "refs/pr/1", COMMIT):
            return _error(404, "RevisionNotFound", "Invalid rev id")
        siblings = []
        for name, data in self.files.items():
            item: dict[str, object] = {"rfilename": name}
            if query.get("blobs") in (["true"], ["True"]):
                item |= {"size": len(data), "blobId": _git_oid(data)}
                if len(data) >= LFS_BYTES:
                    item["blobId"] = "f" * 40
                    item["lfs"] = {
                        "size": self.claimed_size.get(name, len(data)),
                        "sha256": _sha256(data),
                        "pointerSize": 135,
                    }
            siblings.append(item)
        body: dict[str, object] = {
            "_id": "1",
            "id": self.repo,
            "modelId": self.repo,
            "sha": COMMIT,
            "siblings": siblings,
        }
        body |= {"private": False, "disabled": False, "gated": False, "tags": [], "downloads": 0, "likes": 0}
        return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(body).encode())

    def _file(self, request: Request, revision: str, name: str) -> Reply:
        if self.gated:
            return _error(403, "GatedRepo", "Access to this model is restricted")
        if revision != COMMIT:
            return _error(404, "RevisionNotFound", "Invalid rev id")
        if name not in self.files:
            return _error(404, "EntryNotFound", "Entry not found")
        data = self.instead.get(name, self.files[name])
        headers = {
            "ETag": f'"{_sha256(data)}"',
            "X-Repo-Commit": COMMIT,
            "X-Linked-Size": str(len(data)),
            "X-Linked-Etag": f'"{_sha256(data)}"',
            "Accept-Ranges": "bytes",
        }
        if name in self.redirect:
            return Reply(302, headers | {"Location": self.redirect[name]})
        if name in self._cut_done and name in self.then_status:
            return _error(self.then_status[name], "", "down for maintenance")
        reply = range_reply(request, data, headers, ignore=self.ignore_range)
        if name in self.cut and name not in self._cut_done and request.method == "GET":
            self._cut_done.add(name)
            reply.cut_after = self.cut[name]
        return reply


def range_reply(request: Request, data: bytes, headers: dict[str, str], *, ignore: bool = False) -> Reply:
    """`data`, or the part of it that a Range header asks for."""
    asked = request.headers.get("range")
    if asked is None or ignore:
        return Reply(200, headers, data)
    start = int(asked.removeprefix("bytes=").partition("-")[0])
    if start >= len(data):
        return Reply(416, headers | {"Content-Range": f"bytes */{len(data)}"})
    span = f"bytes {start}-{len(data) - 1}/{len(data)}"
    return Reply(206, headers | {"Content-Range": span}, data[start:])


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {"X-Error-Code": code, "X-Error-Message": message}, b"")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
