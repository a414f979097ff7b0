"""Writes a model as an ONNX graph with its weights in a file beside it, and the text files around it.

The folder holds what three kinds of readers need: any ONNX runtime the graph, onnxruntime-genai its
genai_config.json and tokenizer, edgeseek's own `onnx` backend the graph's metadata. Streams pieces of rows;
everything appears whole or not at all. Knows nothing of running a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from edgeseek import __version__
from edgeseek.architectures import ModelConfig
from edgeseek.errors import MissingExtraError, StorageError, UnsupportedCheckpointError, UsageError
from edgeseek.export.new_folder import NewFiles
from edgeseek.export.onnx_genai import (
    GENAI_CONFIG_NAME,
    TOKENIZER_CONFIG_NAME,
    genai_config,
    tokenizer_config,
)
from edgeseek.export.source import ModelSource, open_source
from edgeseek.memory.planner import DEFAULT_CONTEXT
from edgeseek.package.files import Files, OsFiles
from edgeseek.package.manifest import GENERATION_NAME, TEMPLATE_NAME, TOKENIZER_NAME
from edgeseek.tokenizer import build_tokenizer_json, chat_template_of, generation_defaults

Precision = Literal["int4", "f16", "f32"]

#: Families whose layers this graph has.
FAMILIES = ("llama", "qwen2", "qwen3")
#: ONNX operator sets: the first whose `ReduceMean` and `Split` are the ones used here, and the default.
OLDEST_OPSET = 18
DEFAULT_OPSET = 18
GRAPH_NAME = "model.onnx"
#: Metadata keys of the graph begin so.
PREFIX = "edgeseek."

#: Called with (bytes of weights written, bytes in all).
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class OnnxReport:
    """What was written: `graph` is the .onnx file, `size` the bytes of all files."""

    graph: Path
    size: int
    precision: str
    max_positions: int
    #: How each matrix was stored: name, stored type, the source's type, whether its values are the source's.
    matrices: tuple[tuple[str, str, str, bool], ...]

    @property
    def rounded(self) -> int:
        """Matrices whose values differ from the source's."""
        return sum(not exact for *_, exact in self.matrices)


def write_onnx(
    source: Path | ModelSource,
    output: Path,
    *,
    precision: str = "int4",
    max_positions: int | None = None,
    opset: int = DEFAULT_OPSET,
    force: bool = False,
    progress: Progress | None = None,
    files: Files | None = None,
) -> OnnxReport:
    """Write `source` (a package, a Hugging Face folder, a GGUF, or an opened one) to `output`.

    `output` is a file that ends in .onnx, or a folder, which gets a model.onnx; the other files lie beside
    it. `precision` "f32" makes a graph of standard operators alone; "f16" and "int4" use ONNX Runtime's
    `GroupQueryAttention`, int4 `MatMulNBits` too: a matrix that the source stores as q4 or q8 keeps its
    values, q5 and q6k matrices and a head of floats are rounded to 8 bits, all else to 4. `max_positions` is
    the longest sequence the graph takes (default: the model's, 8192 at most).

    Raises MissingExtraError without the `onnx` package, UnsupportedCheckpointError for a family that is not
    in `FAMILIES`, UsageError for a bad option, CheckpointError, PackageError or TokenizerError for a source
    that cannot be read, StorageError for an existing file unless `force` and for what the disk refuses. Then,
    and when it is interrupted, nothing is left behind.
    """
    require_onnx()
    if precision not in get_args(Precision):
        raise UsageError(f"precision {precision!r} is unknown; give {', '.join(get_args(Precision))}")
    _check_opset(opset)
    graph_path = output if output.suffix == ".onnx" else output / GRAPH_NAME
    with ExitStack() as stack:
        if isinstance(source, Path):
            source = stack.enter_context(open_source(source))
        check_family(source.config, source.name)
        positions = _positions(source.config, max_positions)
        with NewFiles(graph_path.parent, files or OsFiles(), force=force) as new:
            return _write(source, graph_path, new, cast(Precision, precision), positions, opset, progress)


def require_onnx() -> None:
    """Raise MissingExtraError where the `onnx` package is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "exporting to ONNX") from error


def _check_opset(opset: int) -> None:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise UsageError(f"opset {opset} cannot be written; give {OLDEST_OPSET} to {newest}")


def check_family(config: ModelConfig, name: str) -> None:
    """Raise UnsupportedCheckpointError for a model that has no graph."""
    what = config.architecture
    if what not in FAMILIES or config.moe is not None or config.latent is not None:
        extra = " with experts" if config.moe else " with latent attention" if config.latent else ""
        raise UnsupportedCheckpointError(
            f"{name} is of the family {what}{extra}, which cannot be exported to ONNX yet; these can: "
            f"{', '.join(FAMILIES)}"
        )


def _positions(config: ModelConfig, asked: int | None) -> int:
    if asked is None:
        return min(config.max_context, DEFAULT_CONTEXT)
    if not 1 <= asked <= config.max_context:
        raise UsageError(f"the model takes 1 to {config.max_context} tokens; {asked} were asked for")
    return asked


def _write(
    source: ModelSource,
    graph_path: Path,
    new: NewFiles,
    precision: Precision,
    positions: int,
    opset: int,
    progress: Progress | None,
) -> OnnxReport:
    import onnx

    from edgeseek.export.onnx_decoder import DecoderGraph

    data_name = f"{graph_path.name}.data"
    built = DecoderGraph(source.config, source.tensors, precision, positions, data_name)
    graph = built.graph
    texts = _texts(source, graph_path.name, positions, precision)
    model = graph.model(
        source.name, opset, _metadata(source, precision, positions), __version__
    ).SerializeToString()
    new.begin([*texts, data_name, graph_path.name], graph.data_bytes + len(model))
    _write_data(new, data_name, graph, progress)
    for name, text in texts.items():
        new.write(name, (text,))
    new.write(graph_path.name, (model,))
    # The checker reads external data's places and sizes too.
    try:
        onnx.checker.check_model(str(new.path(graph_path.name)))
    except onnx.checker.ValidationError as error:
        raise StorageError(f"onnx.checker refuses the graph that was written: {error}") from error
    new.finish()
    size = graph.data_bytes + len(model) + sum(map(len, texts.values()))
    matrices = tuple((m.name, m.stored, m.source, m.exact) for m in built.weights.outcomes)
    return OnnxReport(graph_path, size, precision, positions, matrices)


def _write_data(new: NewFiles, name: str, graph: Any, progress: Progress | None) -> None:
    def pieces() -> Any:
        done = 0
        for stored in graph.stored:
            yield bytes(stored.offset - done)
            done, end = stored.offset, stored.offset + stored.size
            for chunk in stored.chunks():
                done += chunk.nbytes
                yield np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data
                if progress is not None:
                    progress(done, graph.data_bytes)
            if done != end:
                raise ValueError(f"{end - done} bytes are missing of a tensor at {stored.offset}")

    new.write(name, pieces())


def _metadata(source: ModelSource, precision: str, positions: int) -> dict[str, str]:
    """What the `onnx` backend reads back, see `runtime/onnx_graph.py`."""
    values = {
        "name": source.name,
        "digest": source.digest(),
        "config": json.dumps(source.config.to_json()),
        "precision": precision,
        "max_positions": str(positions),
        "shares_buffer": str(int(precision != "f32")),
    }
    return {PREFIX + key: value for key, value in values.items()}


def _texts(source: ModelSource, graph_name: str, positions: int, precision: str) -> Mapping[str, bytes]:
    vocabulary = build_tokenizer_json(source.text)
    template = chat_template_of(source.text)
    generation = dict(generation_defaults(source.text))
    objects = {
        GENERATION_NAME: generation,
        TOKENIZER_CONFIG_NAME: tokenizer_config(vocabulary, source.config, template),
        GENAI_CONFIG_NAME: genai_config(
            source.config,
            graph_file=graph_name,
            max_positions=positions,
            shares_buffer=precision != "f32",
            generation=generation,
        ),
    }
    texts = {TOKENIZER_NAME: vocabulary}
    if template is not None:
        texts[TEMPLATE_NAME] = template.encode()
    texts.update(
        (name, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())
        for name, value in objects.items()
    )
    return texts
