"""In-memory checkpoints: what `checkpoints/base.py` asks for and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeseek.checkpoints.base import CheckpointKind, TextAssets


@dataclass(frozen=True, eq=False)
class FakeTensor:
    """`data` is [rows, bytes per row]; tensors without data have names and shapes only."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8] | None = None

    def read_rows(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        if self.data is None:
            raise AssertionError(f"{self.name} was read")
        return self.data[start:stop]


@dataclass(frozen=True)
class FakeCheckpoint:
    kind: CheckpointKind
    raw_config: Mapping[str, Any]
    tensors: Mapping[str, FakeTensor]
    text_assets: TextAssets = field(default_factory=TextAssets)
    path: Path = Path("fake")

    def digest(self) -> str:
        return "5" * 64

    def close(self) -> None:
        return

    def __enter__(self) -> FakeCheckpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        return


def shapes_only(shapes: Mapping[str, tuple[int, ...]], dtype: str = "F32") -> dict[str, FakeTensor]:
    """Tensors that can be named and measured but not read."""
    return {name: FakeTensor(name, dtype, shape) for name, shape in shapes.items()}
