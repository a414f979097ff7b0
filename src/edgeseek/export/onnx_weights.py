"""Matrices of a source as initializers: floats, or codes and scales for `MatMulNBits`.

A matrix is read in pieces of rows when the data file is written. Knows nothing of layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edgeseek.errors import UnsupportedCheckpointError
from edgeseek.export.onnx import Precision
from edgeseek.export.onnx_graph import Graph
from edgeseek.export.source import SourceTensor, row_ranges
from edgeseek.quantize.packing import Blocks, chunk_bytes
from edgeseek.quantize.rtn import RoundingError, from_floats

#: Columns that share a scale.
BLOCK = 32
#: `MatMulNBits`: products of int8 activations, summed in integers, where the runtime can.
ACCURACY_LEVEL = 4
_PIECE_WEIGHTS = 1 << 21
_MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class MatrixOutcome:
    """How a matrix was written: as "q4", "q8", "f16" or "f32", and whether its values are the source's."""

    name: str
    stored: str
    source: str
    exact: bool


@dataclass(frozen=True)
class _Stored:
    """Names of a quantized matrix's initializers."""

    bits: int
    codes: str
    scales: str


class Weights:
    """Adds matrices to `graph`. `outcomes` says what became of each."""

    def __init__(self, graph: Graph, precision: Precision) -> None:
        self._graph = graph
        self._precision = precision
        self.outcomes: list[MatrixOutcome] = []
        self._matrices: dict[str, _Stored] = {}

    @property
    def dtype(self) -> npt.DTypeLike:
        """Type of what linear layers and attention read and give."""
        return np.float16 if self._precision == "f16" else np.float32

    def vector(self, name: str, tensor: SourceTensor, dtype: npt.DTypeLike = np.float32) -> str:
        """A vector."""
        return self._graph.array(name, tensor.floats(0, 1).reshape(-1).astype(dtype))

    def embedding(self, name: str, tensor: SourceTensor, ids: str, *, tied: bool) -> str:
        """Rows of a table for a vector of ids, float32; `tied` says that it is the output head too."""
        if self._precision == "int4":
            return self._quantized_rows(name, tensor, ids, tied)
        rows = self._graph.add("Gather", self._floats(name, tensor, self.dtype), ids, axis=0, name="embed")
        return self._graph.add("Cast", rows, to=1, name="embed.float") if self._precision == "f16" else rows

    def linear(
        self, name: str, tensor: SourceTensor, value: str, bias: SourceTensor | None, *, head: bool = False
    ) -> str:
        """value [n, columns] times the transposed matrix, plus the bias; `head` keeps 8 bits of floats."""
        if self._precision == "int4":
            return self._quantized(name, tensor, value, bias, head)
        operands = [value, self._floats(f"{name}.weight", tensor, self.dtype)]
        if bias is not None:
            operands.append(self.vector(f"{name}.bias", bias, self.dtype))
        return self._graph.add("Gemm", *operands, transB=1, name=name)

    def tied_head(self, name: str, tensor: SourceTensor, value: str) -> str:
        """`linear` with the table that `embedding` stored as `name`."""
        if self._precision == "int4":
            return self._product("head", tensor, value, self._matrices[name])
        return self._graph.add("Gemm", value, name, transB=1, name="head")

    def _quantized(
        self, name: str, tensor: SourceTensor, value: str, bias: SourceTensor | None, head: bool
    ) -> str:
        product = self._product(name, tensor, value, self._store(f"{name}.weight", tensor, head))
        if bias is None:
            return product
        return self._graph.add("Add", product, self.vector(f"{name}.bias", bias), name=f"{name}.biased")

    def _quantized_rows(self, name: str, tensor: SourceTensor, ids: str, tied: bool) -> str:
        matrix = self._store(name, tensor, head=True, table=not tied)
        rows, columns = tensor.shape
        width = -(-columns // BLOCK) * BLOCK
        codes = matrix.codes
        if tied:
            self._matrices[name] = matrix
            # The same bytes as the head's, without an axis of blocks.
            codes = self._graph.alias(f"{name}.rows", codes, (rows, width * matrix.bits // 8))
        # Two points of 4 bits share a byte; the last has one of its own where their number is odd.
        packed = -(-(width // BLOCK) * matrix.bits // 8)
        points = np.full((rows, packed), 0x88 if matrix.bits == 4 else 128, np.uint8)
        zeros = self._graph.array(f"{name}.zero_points", points)
        found = self._graph.add(
            "GatherBlockQuantized",
            codes,
            ids,
            matrix.scales,
            zeros,
            domain=_MICROSOFT,
            name="embed",
            bits=matrix.bits,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )
        if width == columns:
            return found
        return self._graph.add(
            "Slice",
            found,
            self._graph.ints(0),
            self._graph.ints(columns),
            self._graph.ints(1),
            name="embed.cut",
        )

    def _store(self, name: str, tensor: SourceTensor, head: bool, table: bool = False) -> _Stored:
        """Codes as [rows, blocks, bytes], or [rows, bytes] of a `table`, and scales [rows, blocks]."""
        scheme: Literal["q4", "q8"] = "q8" if _wants_8_bits(tensor.scheme, head) else "q4"
        exact = tensor.scheme == scheme
        self.outcomes.append(MatrixOutcome(name, scheme, tensor.scheme, exact))
        bits = 8 if scheme == "q8" else 4
        rows, columns = tensor.shape
        blocks = -(-columns // BLOCK)
        width = BLOCK * bits // 8
        shape = (rows, blocks * width) if table else (rows, blocks, width)
        matrix = _Quantized(name, tensor, scheme, exact)
        return _Stored(
            bits,
            self._graph.stream(f"{name}.codes", np.uint8, shape, matrix.codes),
            self._graph.stream(f"{name}.scales", np.float32, (rows, blocks), matrix.scales),
        )

    def _product(self, name: str, tensor: SourceTensor, value: str, matrix: _Stored) -> str:
        rows, columns = tensor.shape
        return self._graph.add(
            "MatMulNBits",
            value,
            matrix.codes,
            matrix.scales,
            domain=_MICROSOFT,
            name=name,
            N=rows,
            K=columns,
            bits=matrix.bits,
            block_size=BLOCK,
            accuracy_level=ACCURACY_LEVEL,
        )

    def _floats(self, name: str, tensor: SourceTensor, dtype: npt.DTypeLike) -> str:
        kind = np.dtype(dtype)
        stored = "f16" if kind == np.float16 else "f32"
        exact = stored == "f32" or tensor.scheme == "f16"
        self.outcomes.append(MatrixOutcome(name, stored, tensor.scheme, exact))

        def chunks() -> Iterator[npt.NDArray[Any]]:
            for start, stop in row_ranges(tensor, 1, _PIECE_WEIGHTS):
                rows = tensor.floats(start, stop)
                with np.errstate(over="ignore"):
                    cast = rows.astype(kind)
                if not np.isfinite(cast).all():
                    raise UnsupportedCheckpointError(
                        f"tensor {name!r} holds values that are not finite in {stored}; export it as f32 or "
                        "fetch the model again"
                    )
                yield cast

        return self._graph.stream(name, kind, tensor.shape, chunks)


class _Quantized:
    """Codes and then scales of one matrix; the scales are kept from the first pass to the second."""

    def __init__(self, name: str, tensor: SourceTensor, scheme: Literal["q4", "q8"], exact: bool) -> None:
        self._name, self._tensor, self._scheme, self._exact = name, tensor, scheme, exact
        self._kept: list[npt.NDArray[np.float32]] = []

    def codes(self) -> Iterator[npt.NDArray[Any]]:
        """[rows, blocks, bytes], unsigned around 8 or 128, the lower of two columns in the lower half."""
        self._kept.clear()
        columns = self._tensor.shape[1]
        for start, stop in row_ranges(self._tensor, 1, _PIECE_WEIGHTS):
            blocks = self._blocks(start, stop)
            halves = np.ascontiguousarray(blocks.scales["d"][0].T).view("<f2")
            self._kept.append(halves.astype(np.float32))
            codes = chunk_bytes(blocks.codes)
            if self._scheme == "q8":
                yield codes + np.uint8(128)
                continue
            # What pads the last block stands for zero.
            codes.reshape(len(codes), -1)[:, columns:] = 8
            yield codes[..., 0::2] | codes[..., 1::2] << 4

    def scales(self) -> Iterator[npt.NDArray[Any]]:
        """[rows, blocks] of what `codes` went through."""
        yield from self._kept
        self._kept.clear()

    def _blocks(self, start: int, stop: int) -> Blocks:
        if self._exact:
            return self._tensor.blocks(start, stop)
        try:
            return from_floats(self._tensor.floats(start, stop), self._scheme)
        except RoundingError as error:
            raise UnsupportedCheckpointError(f"{self._name} cannot become {self._scheme}: {error}") from error


def _wants_8_bits(scheme: str, head: bool) -> bool:
    """Whoever kept more than 5.5 bits of a matrix had a reason; the output head of floats has one too."""
    return scheme in ("q8", "q5", "q5z", "q6k") or (head and scheme in ("f32", "f16", "bf16"))
