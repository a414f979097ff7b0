"""The server's own cgroup is asked for by option or file, and want of memory is 429 or 503."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeseek.errors import OverloadedError, UsageError
from edgeseek.memory.cgroup_placement import MemoryBounds

pytest.importorskip("fastapi", reason="needs pip install 'edgeseek[server]'")


def bounds(given: dict[str, Any], file: Path | None = None) -> MemoryBounds:
    from edgeseek.cli.serve import config_of

    return config_of({"model": "m", **given}, file, ()).memory


def test_limits_come_from_options_and_the_file(tmp_path: Path) -> None:
    assert bounds({}) == MemoryBounds()
    assert bounds({"memory-high": "3GiB", "memory-max": "4GiB"}) == MemoryBounds(3 << 30, 4 << 30)
    file = tmp_path / "serve.toml"
    file.write_text('memory-high = "1GiB"\nmemory-max = "2GiB"\n')
    assert bounds({}, file) == MemoryBounds(1 << 30, 2 << 30)
    assert bounds({"memory-max": "5GB"}, file) == MemoryBounds(1 << 30, 5_000_000_000)


def test_senseless_limits_are_refused() -> None:
    with pytest.raises(UsageError, match="--memory-high is 'much'"):
        bounds({"memory-high": "much"})
    with pytest.raises(UsageError, match="the kernel would kill before it slows down"):
        bounds({"memory-high": "5GiB", "memory-max": "4GiB"})


def test_a_refused_request_is_429_and_one_that_was_ended_503() -> None:
    from edgeseek.server.errors import api_error

    refused = api_error(OverloadedError("no memory"))
    ended = api_error(OverloadedError("ended for want of memory", started=True))
    assert (refused.status, refused.code, refused.headers["Retry-After"]) == (429, "overloaded", "15")
    assert (ended.status, ended.code, ended.message) == (503, "overloaded", "ended for want of memory")
