"""Reading of small TOML files that users write."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from edgeseek.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: No table that a person writes is larger.
MAX_BYTES = 1 << 20


def load_toml(path: Path) -> dict[str, Any]:
    """The table in `path`. Raises UsageError, naming the file, where it cannot be read or parsed."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path} is larger than {MAX_BYTES} bytes; it cannot be a TOML file of ours")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
