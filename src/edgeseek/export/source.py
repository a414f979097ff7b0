"""A model to be exported, whatever it is stored as: its tensors by package name, read in pieces of rows.

Rows are in the package's order (one RoPE convention), so that a format decides alone how it wants them.
Knows nothing of output formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from edgeseek.architectures import ModelConfig, TensorRule, ignored_tensors, parse_config, tensor_rules
from edgeseek.checkpoints import Checkpoint, LazyTensor, open_checkpoint
from edgeseek.checkpoints.base import TextAssets
from edgeseek.package import Package, PackedTensor, is_package, open_package
from edgeseek.package.pieces import as_floats, stored_rows, transposed_heads
from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS, split
from edgeseek.quantize.packing import Blocks, Bytes, Floats, first_rows, unpack, unpack_blocks
from edgeseek.quantize.schemes import SCHEMES, interleave, stored_bytes


class SourceTensor(Protocol):
    """One tensor: `shape` is (rows, columns) or (n,); a vector is read as one row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape."""
        ...

    @property
    def scheme(self) -> str:
        """What the values are stored as: a scheme's name, or "bf16"."""
        ...

    @property
    def unit(self) -> int:
        """Pieces begin at multiples of this many rows."""
        ...

    @property
    def origin(self) -> tuple[str, str]:
        """The source's own name for it, and the type that it is stored as there."""
        ...

    def blocks(self, start: int, stop: int, /) -> Blocks:
        """Codes and scales of rows [start, stop) of a scheme that has codes."""
        ...

    def floats(self, start: int, stop: int, /) -> Floats:
        """Rows [start, stop) as float32 [rows, columns]."""
        ...


class ModelSource(Protocol):
    """A model that can be exported."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def config(self) -> ModelConfig:
        """Its hyper-parameters."""
        ...

    @property
    def tensors(self) -> Mapping[str, SourceTensor]:
        """Every tensor by package name."""
        ...

    @property
    def text(self) -> TextAssets:
        """Tokenizer, chat template and sampling defaults."""
        ...

    @property
    def gguf_metadata(self) -> Mapping[str, Any]:
        """All metadata but the `tokenizer.*` arrays where it comes from a GGUF, else empty."""
        ...

    @property
    def ignored(self) -> tuple[str, ...]:
        """Stored tensors that add nothing to the model."""
        ...

    def digest(self) -> str:
        """Identifies what the source holds."""
        ...


class CheckpointSource:
    """A Hugging Face folder or a GGUF. Raises CheckpointError for what cannot be read."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config = parse_config(checkpoint)
        rules = tensor_rules(self.config, checkpoint)
        self.tensors: Mapping[str, SourceTensor] = MappingProxyType(
            {rule.name: _CheckpointTensor(rule, checkpoint.tensors[rule.source]) for rule in rules}
        )
        self.text = checkpoint.text_assets
        self.gguf_metadata: Mapping[str, Any] = (
            checkpoint.raw_config if checkpoint.kind == "gguf" else MappingProxyType({})
        )
        named = self.gguf_metadata.get("general.name")
        self.name = named if isinstance(named, str) and named else checkpoint.path.stem
        self.ignored = ignored_tensors(checkpoint, rules)
        self.digest = checkpoint.digest


class PackageSource:
    """A package; what its tensors hold is exported as it is wherever the format can."""

    gguf_metadata: Mapping[str, Any] = MappingProxyType({})
    ignored: tuple[str, ...] = ()

    def __init__(self, package: Package) -> None:
        self._package = package
        self.config = package.config
        self.name = package.name
        self.tensors: Mapping[str, SourceTensor] = MappingProxyType(
            {name: _PackageTensor(name, tensor) for name, tensor in package.tensors.items()}
        )
        self.text = TextAssets(
            tokenizer_json=package.tokenizer_json,
            chat_template=package.chat_template,
            generation_config=package.generation_config,
        )

    def digest(self) -> str:
        """The package's."""
        return self._package.digest


@contextmanager
def open_source(path: Path) -> Iterator[ModelSource]:
    """The package, Hugging Face folder or GGUF at `path`, until the block is left.

    Raises UnknownModelError, CheckpointError or PackageError.
    """
    if is_package(path):
        with open_package(path) as package:
            yield PackageSource(package)
    else:
        with open_checkpoint(path) as checkpoint:
            yield CheckpointSource(checkpoint)


@dataclass(frozen=True)
class _CheckpointTensor:
    rule: TensorRule
    stored: LazyTensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rule.shape

    @property
    def scheme(self) -> str:
        dtype = self.stored.dtype
        # F8 arrives scaled, as float32; transposed values are no stored rows.
        if dtype.startswith("F8") or self._transposed:
            return "f32"
        return GGUF_BLOCKS[dtype].scheme if dtype in GGUF_BLOCKS else dtype.lower()

    @property
    def unit(self) -> int:
        heads = self.rule.head_rows.heads if self.rule.head_rows else self.rule.unpermute_heads
        return self.rule.shape[0] // heads if heads else 1

    @property
    def origin(self) -> tuple[str, str]:
        return self.rule.source, self.stored.dtype

    def blocks(self, start: int, stop: int) -> Blocks:
        return split(self.stored.dtype, stored_rows(self.rule, self.stored, start, stop))

    def floats(self, start: int, stop: int) -> Floats:
        rows = as_floats(self.stored.dtype, stored_rows(self.rule, self.stored, start, stop))
        part = self.rule.head_rows
        return transposed_heads(rows, part.count) if part is not None and part.transposed else rows

    @property
    def _transposed(self) -> bool:
        return self.rule.head_rows is not None and self.rule.head_rows.transposed


@dataclass(frozen=True)
class _PackageTensor:
    name: str
    tensor: PackedTensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def scheme(self) -> str:
        return self.tensor.scheme

    @property
    def unit(self) -> int:
        return interleave(self.tensor.layout)

    @property
    def origin(self) -> tuple[str, str]:
        return self.name, self.scheme

    def blocks(self, start: int, stop: int) -> Blocks:
        data, shape = self._part(start, stop)
        return first_rows(unpack_blocks(data, self.tensor.scheme, self.tensor.layout, shape), stop - start)

    def floats(self, start: int, stop: int) -> Floats:
        if len(self.shape) == 1:
            return unpack(self.tensor.data, self.scheme, self.tensor.layout, self.shape)[None]
        data, shape = self._part(start, stop)
        return unpack(data, self.tensor.scheme, self.tensor.layout, shape)

    def _part(self, start: int, stop: int) -> tuple[Bytes, tuple[int, int]]:
        """The stored bytes of whole tiles, and the logical shape of what they hold."""
        shape = (stop - start, self.shape[1])
        tile = stored_bytes(self.tensor.scheme, self.tensor.layout, (1, self.shape[1]))
        first = start // self.unit * tile
        return self.tensor.data[first : first + math.ceil(shape[0] / self.unit) * tile], shape


@dataclass(frozen=True)
class Constant:
    """A vector that follows from the config and lies in no file."""

    vector: Floats
    scheme: str = "f32"
    unit: int = 1
    origin: tuple[str, str] = ("", "F32")

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return self.vector.shape

    def blocks(self, _start: int, _stop: int) -> Blocks:
        """No floats have any: raises ValueError."""
        raise ValueError("floats have no codes")

    def floats(self, _start: int, _stop: int) -> Floats:
        """The vector as one row."""
        return self.vector[None]


def has_codes(scheme: str) -> bool:
    """Whether values of this scheme are codes times scales rather than floats."""
    return scheme in SCHEMES and SCHEMES[scheme].code_bits > 0


def row_ranges(tensor: SourceTensor, unit: int, weights: int) -> Iterator[tuple[int, int]]:
    """Row ranges of about `weights` weights that begin at multiples of `unit` and of the tensor's own."""
    if len(tensor.shape) == 1:
        yield 0, 1
        return
    rows, columns = tensor.shape
    whole = int(np.lcm(unit, tensor.unit))
    step = max(whole, weights // columns // whole * whole)
    for start in range(0, rows, step):
        yield start, min(start + step, rows)
