"""Typed reads from a raw config, with errors that name the key, what it holds and where.

Knows nothing of any family.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeseek.checkpoints.base import Checkpoint
from edgeseek.errors import CheckpointFormatError

#: Larger counts are refused as damaged: no model comes near, and plans stay within 64 bits.
MAX_COUNT = 1 << 28
#: The same for layers, whose number is also a number of loops.
MAX_LAYERS = 10_000


@dataclass(frozen=True)
class Fields:
    """The keys of a config; `prefix` (GGUF's "llama.", say) is put before every key that is asked for.

    A key whose value is null counts as absent. Every method raises CheckpointFormatError for a value of
    another kind, and for an absent key without a default.
    """

    values: Mapping[str, Any]
    origin: str
    prefix: str = ""

    def get(self, key: str) -> Any:
        """The value as it is, None if absent."""
        return self.values.get(self.prefix + key)

    def count(self, key: str, default: int | None = None, *, most: int = MAX_COUNT) -> int:
        """A whole number from 1 to `most`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self._bad(key, value, f"a whole number from 1 to {most}")
        return value

    def whole(self, key: str, default: int, *, most: int = MAX_COUNT) -> int:
        """A whole number from 0 to `most`."""
        return 0 if self._value(key, default) == 0 else self.count(key, default, most=most)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self._value(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value <= sys.float_info.max
        ):
            raise self._bad(key, value, "a positive number")
        return float(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of positive finite numbers."""
        value = self._value(key, None)
        if not isinstance(value, list | tuple):
            raise self._bad(key, value, "a list of positive numbers")
        items = Fields({str(i): item for i, item in enumerate(value)}, f"{self.origin}, {key!r}")
        return tuple(items.number(name) for name in items.values)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._bad(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._bad(key, value, "a string")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """A token id or a list of them; empty if absent."""
        value = self.get(key)
        if value is None:
            return ()
        ids = value if isinstance(value, list | tuple) else [value]
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < MAX_COUNT:
                raise self._bad(key, value, "a token id or a list of them")
        return tuple(ids)

    def section(self, key: str) -> Fields | None:
        """A nested mapping, None if absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._bad(key, value, "a mapping")
        return Fields(value, f"{self.origin}, {key!r}")

    def _value(self, key: str, default: Any) -> Any:
        value = self.get(key)
        if value is not None:
            return value
        if default is None:
            raise CheckpointFormatError(
                f"{self.origin} has no {self.prefix + key!r}; the checkpoint is incomplete, download it again"
            )
        return default

    def _bad(self, key: str, value: Any, wanted: str) -> CheckpointFormatError:
        shown = repr(value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return CheckpointFormatError(f"{self.origin}: {self.prefix + key!r} is {shown}, not {wanted}")


def config_fields(checkpoint: Checkpoint, prefix: str = "") -> Fields:
    """The raw config of `checkpoint`; for a GGUF, `prefix` is its architecture's with the dot."""
    where = "config.json" if checkpoint.kind == "huggingface" else "the metadata"
    return Fields(checkpoint.raw_config, f"{where} of {checkpoint.path}", prefix)
