"""TOML files that users write: what cannot be read is named with the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeseek.errors import UsageError
from edgeseek.toml import MAX_BYTES, load_toml


def test_a_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[a]\nb = 1\nc = '中'\n", encoding="utf-8")
    assert load_toml(path) == {"a": {"b": 1, "c": "中"}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a = =\n", "is no TOML: .*line 1"),
        (b"a = '\xff'", "is no UTF-8 text: byte 5 is 0xff"),
        (b" " * (MAX_BYTES + 1), "is larger than"),
    ],
)
def test_what_is_no_table_is_refused_by_name(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=f"bad.toml {words}"):
        load_toml(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none.toml cannot be read: No such file"):
        load_toml(tmp_path / "none.toml")
