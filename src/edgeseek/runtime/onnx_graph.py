"""An exported folder as the `onnx` backend reads it: metadata, text files, and the graph that it runs.

`export/onnx.py` writes what is read here. Loads no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeseek.architectures.spec import ModelConfig
from edgeseek.errors import MissingExtraError, PackageError, PackageFormatError
from edgeseek.package.manifest import GENERATION_NAME, TEMPLATE_NAME, TOKENIZER_NAME
from edgeseek.package.reader import read_file

_PREFIX = "edgeseek."
_GRAPH_NAME = "model.onnx"
_FLOAT16 = 10
#: The input that the backend adds: index of the first new token whose logits are wanted.
FIRST_LOGIT = "first_logit"


@dataclass(frozen=True, eq=False)
class ExportedGraph:
    """An exported model. `model` is the graph, its weights outside, `first_logit` among its inputs.

    `config.max_context` is the longest sequence that the graph takes. `shares_buffer` says that past and
    present may be one buffer.
    """

    path: Path
    name: str
    digest: str
    config: ModelConfig
    shares_buffer: bool
    weight_bytes: int
    kv_bytes_per_token: int
    model: bytes

    @property
    def tokenizer_json(self) -> bytes:
        """The `tokenizers` file beside the graph. Raises PackageFormatError where there is none."""
        return read_file(self.path.parent / TOKENIZER_NAME)

    @property
    def chat_template(self) -> str | None:
        """The Jinja template, None for a model without."""
        path = self.path.parent / TEMPLATE_NAME
        try:
            return read_file(path).decode() if path.exists() else None
        except UnicodeDecodeError as error:
            raise PackageFormatError(f"{path} is not UTF-8 ({error})") from error

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """Hugging Face generation keys; empty for a folder without the file."""
        path = self.path.parent / GENERATION_NAME
        if not path.exists():
            return {}
        try:
            values = json.loads(read_file(path))
        except (ValueError, RecursionError) as error:
            raise PackageFormatError(f"{path} is not JSON ({error})") from error
        if not isinstance(values, dict):
            raise PackageFormatError(f"{path} is not a JSON object")
        return values


def exported_graph_path(path: Path) -> Path | None:
    """The .onnx file that `path` is or that the folder `path` holds, None for anything else.

    A folder's is its model.onnx, or its only .onnx file.
    """
    if path.is_file():
        return path if path.suffix == ".onnx" else None
    if (path / _GRAPH_NAME).is_file():
        return path / _GRAPH_NAME
    graphs = sorted(path.glob("*.onnx")) if path.is_dir() else []
    return graphs[0] if len(graphs) == 1 else None


def open_exported(path: Path) -> ExportedGraph:
    """Read the graph at `path`, a file.

    Raises MissingExtraError without the `onnx` package, PackageFormatError for what `edgeseek export` has
    not written, PackageError for what cannot be read.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "running an ONNX graph") from error
    try:
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise PackageError(f"cannot read {path}: {error.strerror or error}") from error
    except DecodeError as error:
        raise PackageFormatError(f"{path} is no ONNX graph ({error}); export the model again") from error
    metadata = {entry.key: entry.value for entry in model.metadata_props if entry.key.startswith(_PREFIX)}
    config, longest = _config(metadata, path)
    size = _data_bytes(model, path)
    _choose_logits(model.graph, onnx)
    return ExportedGraph(
        path=path,
        name=metadata.get(_PREFIX + "name") or path.stem,
        digest=metadata.get(_PREFIX + "digest", ""),
        config=config.with_changes(max_context=min(config.max_context, longest)),
        shares_buffer=metadata.get(_PREFIX + "shares_buffer") == "1",
        weight_bytes=size,
        kv_bytes_per_token=_kv_bytes(model.graph, config, metadata),
        model=model.SerializeToString(),
    )


def _config(metadata: Mapping[str, str], path: Path) -> tuple[ModelConfig, int]:
    """The model's config and the longest sequence."""
    if _PREFIX + "config" not in metadata:
        raise PackageFormatError(
            f"{path} was not written by edgeseek; make one with: edgeseek export MODEL --output FOLDER"
        )
    try:
        config = ModelConfig.from_json(json.loads(metadata[_PREFIX + "config"]))
        longest = int(metadata[_PREFIX + "max_positions"])
    except (KeyError, TypeError, ValueError) as error:
        raise PackageFormatError(
            f"{path}: its metadata cannot be read ({error!r}); export the model again"
        ) from error
    if longest < 1:
        raise PackageFormatError(f"{path} takes {longest} tokens; export the model again")
    return config, longest


def _data_bytes(model: Any, path: Path) -> int:
    """Bytes of the data file. Raises PackageFormatError where it is missing or shorter than named."""
    ends: dict[str, int] = {}
    for tensor in model.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if place:
            end = int(place.get("offset", "0")) + int(place.get("length", "0"))
            ends[place["location"]] = max(end, ends.get(place["location"], 0))
    for name, end in ends.items():
        file = path.parent / name
        found = file.stat().st_size if file.is_file() else None
        if found is None or found < end:
            what = "is missing" if found is None else f"has {found} bytes of {end}"
            raise PackageFormatError(f"{file} {what}; export the model again")
    return sum(ends.values())


def _kv_bytes(graph: Any, config: ModelConfig, metadata: Mapping[str, str]) -> int:
    """Bytes of one position; twice where a step makes new tensors beside the old ones."""
    kinds = {entry.name: entry.type.tensor_type.elem_type for entry in graph.input}
    size = 2 if kinds.get("past_key_values.0.key") == _FLOAT16 else 4
    copies = 1 if metadata.get(_PREFIX + "shares_buffer") == "1" else 2
    return copies * size * config.num_layers * 2 * config.num_kv_heads * config.head_dim


def _choose_logits(graph: Any, onnx: Any) -> None:
    """Cut the tokens before `first_logit` off ahead of the last norm, so that no head is run for them.

    Adds the input, [1] int64, and one Slice; whoever runs the file itself gets the logits of every token.
    """
    last = next((node for node in graph.node if node.name == "final_norm.square"), None)
    if last is None:
        raise PackageFormatError("the graph has no node 'final_norm.square'; export the model again")
    hidden = last.input[0]
    bounds = {"wanted.end": (1 << 63) - 1, "wanted.axis": 0}
    for name, value in bounds.items():
        graph.initializer.append(onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [1], [value]))
    graph.input.append(onnx.helper.make_tensor_value_info(FIRST_LOGIT, onnx.TensorProto.INT64, [1]))
    cut = onnx.helper.make_node("Slice", [hidden, FIRST_LOGIT, *bounds], ["wanted"], name="wanted")
    for node in graph.node:
        if node.name.startswith("final_norm"):
            node.input[:] = ["wanted" if name == hidden else name for name in node.input]
    place = next(i for i, node in enumerate(graph.node) if node.name == last.name)
    graph.node.insert(place, cut)
