"""JSON objects from files that may be damaged: every failure names the file and where it went wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgeseek.errors import CheckpointError, CheckpointFormatError

#: Larger than any configuration, vocabulary or shard index; bounds the memory of a wrong file.
MAX_JSON_BYTES = 256 << 20


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} occurs twice")
            seen.add(key)
    return result


def parse_json_object(data: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `data`; `what` names it in the CheckpointFormatError raised if it is none."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise CheckpointFormatError(
            f"{what} is not UTF-8 at byte {error.start}; the file is damaged, download it again"
        ) from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CheckpointFormatError(
            f"{what} is not valid JSON: {reason}; the file is damaged, download it again"
        ) from error
    if not isinstance(value, dict):
        raise CheckpointFormatError(
            f"{what} holds a JSON {type(value).__name__} where an object is needed; download it again"
        )
    return value


def read_file(path: Path) -> bytes:
    """The contents of `path`. Raises CheckpointError if it cannot be read or is absurdly large."""
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise CheckpointFormatError(
                f"{path} has {size} bytes, more than the {MAX_JSON_BYTES} of any such file"
            )
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in the file `path`. Raises CheckpointError, CheckpointFormatError."""
    return parse_json_object(read_file(path), str(path))
