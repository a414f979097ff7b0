"""A source whose rows and columns are multiplied by factors: what AWQ rounds instead of the original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from edgeseek.architectures import ModelConfig
from edgeseek.checkpoints.base import TextAssets
from edgeseek.export.source import ModelSource, SourceTensor
from edgeseek.quantize.packing import Blocks, Floats


class ScaledSource:
    """`rows` and `columns` map package names to factors; tensors without any stay as they are.

    Factors of rows are [rows], or [n] for a vector's elements; those of columns [columns].
    """

    def __init__(
        self, source: ModelSource, rows: Mapping[str, Floats], columns: Mapping[str, Floats]
    ) -> None:
        self._source = source
        self.tensors: Mapping[str, SourceTensor] = MappingProxyType(
            {
                name: _ScaledTensor(tensor, rows.get(name), columns.get(name))
                if name in rows or name in columns
                else tensor
                for name, tensor in source.tensors.items()
            }
        )

    @property
    def name(self) -> str:
        """The source's."""
        return self._source.name

    @property
    def config(self) -> ModelConfig:
        """The source's."""
        return self._source.config

    @property
    def text(self) -> TextAssets:
        """The source's."""
        return self._source.text

    @property
    def gguf_metadata(self) -> Mapping[str, Any]:
        """The source's."""
        return self._source.gguf_metadata

    @property
    def ignored(self) -> tuple[str, ...]:
        """The source's."""
        return self._source.ignored

    def digest(self) -> str:
        """The source's."""
        return self._source.digest()


@dataclass(frozen=True)
class _ScaledTensor:
    tensor: SourceTensor
    rows: Floats | None
    columns: Floats | None

    #: Scaled values are no stored codes any more.
    scheme: str = "f32*"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def unit(self) -> int:
        return self.tensor.unit

    @property
    def origin(self) -> tuple[str, str]:
        return self.tensor.origin

    def blocks(self, _start: int, _stop: int) -> Blocks:
        raise ValueError("scaled values have no codes")

    def floats(self, start: int, stop: int) -> Floats:
        values = self.tensor.floats(start, stop)
        if self.rows is not None:
            factors = self.rows if len(self.shape) == 1 else self.rows[start:stop, None]
            values = values * factors
        return values if self.columns is None else values * self.columns
