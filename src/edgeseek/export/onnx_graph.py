"""Puts an ONNX graph together: nodes, initializers whose values lie in a file beside it, inputs and outputs.

Values are named by the node that makes them. Knows nothing of what the graph computes; `onnx_decoder.py`
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

Chunks = Callable[[], Iterator[npt.NDArray[Any]]]

#: Tensors of at most this many bytes lie in the graph itself: shapes, axes, single numbers.
_INLINE_BYTES = 64
#: A tensor's place in the data file is a multiple of this, so that runtimes can map it.
_ALIGNMENT = 4096

_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.uint8): TensorProto.UINT8,
}


@dataclass(frozen=True)
class Stored:
    """A region of the data file and what fills it, front to back."""

    offset: int
    size: int
    chunks: Chunks


@dataclass
class Graph:
    """A graph that grows; `save_model` turns it into a file."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    #: What the data file holds, in order.
    stored: list[Stored] = field(default_factory=list)
    data_file: str = "model.onnx.data"
    _counts: dict[str, int] = field(default_factory=dict)

    @property
    def data_bytes(self) -> int:
        """Size of the data file."""
        return self.stored[-1].offset + self.stored[-1].size if self.stored else 0

    def add(self, op: str, *inputs: str, name: str = "", domain: str = "", **attributes: Any) -> str:
        """Append a node with one output and return that output's name."""
        return self.add_many(op, inputs, 1, name=name, domain=domain, **attributes)[0]

    def add_many(
        self, op: str, inputs: Sequence[str], outputs: int, *, name: str = "", domain: str = "", **more: Any
    ) -> list[str]:
        """Append a node with several outputs and return their names."""
        name = name or op
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        unique = f"{name}~{count}" if count else name
        made = [unique if i == 0 else f"{unique}:{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), made, name=unique, domain=domain, **more))
        return made

    def rename(self, value: str, name: str) -> None:
        """Give the value that the last node made another name, as an output of the graph needs."""
        outputs = self.nodes[-1].output
        outputs[list(outputs).index(value)] = name

    def constant(self, values: Any, dtype: npt.DTypeLike) -> str:
        """A small tensor that lies in the graph; equal ones are one."""
        array = np.asarray(values, dtype)
        name = f"const.{array.dtype}.{'x'.join(map(str, array.shape))}." + "_".join(map(str, array.ravel()))
        if name not in self.initializers:
            self.initializers[name] = onnx.numpy_helper.from_array(array, name)
        return name

    def ints(self, *values: int) -> str:
        """An int64 vector."""
        return self.constant(values, np.int64)

    def array(self, name: str, values: npt.NDArray[Any]) -> str:
        """A tensor given whole."""
        if values.nbytes <= _INLINE_BYTES:
            self.initializers[name] = onnx.numpy_helper.from_array(np.ascontiguousarray(values), name)
            return name
        return self.stream(name, values.dtype, values.shape, lambda: iter((values,)))

    def stream(self, name: str, dtype: npt.DTypeLike, shape: Sequence[int], chunks: Chunks) -> str:
        """A tensor whose values `chunks` delivers when the data file is written, after those before it."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        offset = -(-self.data_bytes // _ALIGNMENT) * _ALIGNMENT
        self.stored.append(Stored(offset, size, chunks))
        self._place(name, kind, shape, offset, size)
        return name

    def alias(self, name: str, of: str, shape: Sequence[int]) -> str:
        """The bytes of the stored tensor `of` once more, in another shape."""
        source = self.initializers[of]
        place = {entry.key: entry.value for entry in source.external_data}
        proto = onnx.TensorProto(name=name, data_type=source.data_type, dims=list(shape))
        self._external(proto, int(place["offset"]), int(place["length"]))
        return name

    def input(self, name: str, dtype: npt.DTypeLike, shape: Sequence[int | str]) -> str:
        """Declare an input."""
        self.inputs.append(helper.make_tensor_value_info(name, _TYPES[np.dtype(dtype)], list(shape)))
        return name

    def output(self, name: str, dtype: npt.DTypeLike, shape: Sequence[int | str]) -> None:
        """Declare an output that a node has made."""
        self.outputs.append(helper.make_tensor_value_info(name, _TYPES[np.dtype(dtype)], list(shape)))

    def model(self, name: str, opset: int, metadata: dict[str, str], version: str) -> onnx.ModelProto:
        """The finished model, its large tensors outside."""
        graph = helper.make_graph(
            self.nodes, name, self.inputs, self.outputs, initializer=list(self.initializers.values())
        )
        domains = [helper.make_opsetid("", opset)]
        if any(node.domain == "com.microsoft" for node in self.nodes):
            domains.append(helper.make_opsetid("com.microsoft", 1))
        model = helper.make_model(
            graph,
            opset_imports=domains,
            ir_version=max(10, helper.find_min_ir_version_for(domains[:1])),
            producer_name="edgeseek",
            producer_version=version,
        )
        helper.set_model_props(model, metadata)
        return model

    def _place(self, name: str, kind: np.dtype[Any], shape: Sequence[int], offset: int, size: int) -> None:
        proto = onnx.TensorProto(name=name, data_type=_TYPES[kind], dims=list(shape))
        self._external(proto, offset, size)

    def _external(self, proto: onnx.TensorProto, offset: int, size: int) -> None:
        proto.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", self.data_file), ("offset", offset), ("length", size)):
            proto.external_data.add(key=key, value=str(value))
        self.initializers[proto.name] = proto
