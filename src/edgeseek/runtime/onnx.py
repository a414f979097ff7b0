"""The `onnx` backend: graphs that `edgeseek export` wrote, run by ONNX Runtime on any of its providers.

Runs one sequence at a time; keys and values stay in ONNX Runtime's tensors from step to step. Knows nothing
of text or scheduling.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeseek.architectures.spec import ModelConfig
from edgeseek.errors import MissingExtraError, RuntimeFailure, UsageError
from edgeseek.runtime.backend import Capabilities, Sample, SampleRow, Slice
from edgeseek.runtime.drawing import draw
from edgeseek.runtime.onnx_cache import Cache, Caches
from edgeseek.runtime.onnx_graph import FIRST_LOGIT, ExportedGraph

DEFAULT_PROVIDER = "CPUExecutionProvider"
_SUFFIX = "ExecutionProvider"
_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class OnnxBackend:
    """Runs an exported graph. Implements `runtime.backend.Backend`; not thread-safe.

    `blocks` bounds the positions of all sequences together, see `onnx_cache`. `provider` is the name of an
    execution provider, with or without "ExecutionProvider" and in any case; what it cannot run, the CPU
    does. Raises MissingExtraError without onnxruntime, UsageError for a provider that is not installed, and
    RuntimeFailure where ONNX Runtime refuses the graph or the provider does not start.
    """

    def __init__(
        self, graph: ExportedGraph, *, blocks: int, threads: int, provider: str | None = None
    ) -> None:
        runtime = _onnxruntime()
        self._config = graph.config
        self._blocks = blocks
        name = choose_provider(provider, runtime.get_available_providers())
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(graph.path.parent.absolute())
        )
        try:
            self._session = runtime.InferenceSession(
                graph.model, options, providers=list(dict.fromkeys((name, DEFAULT_PROVIDER)))
            )
        # ONNX Runtime's own errors have no common base but Exception.
        except Exception as error:
            raise RuntimeFailure(f"ONNX Runtime cannot run {graph.path}: {error}") from error
        if name not in self._session.get_providers():
            raise RuntimeFailure(
                f"the provider {name} is installed but did not start here; see ONNX Runtime's messages, or "
                "leave out --provider"
            )
        self.provider = name
        self.threads = threads
        kept = [entry for entry in self._session.get_inputs() if entry.name.startswith("past_key_values.")]
        self._shared = graph.shares_buffer
        shape = graph.config.num_kv_heads, graph.config.head_dim
        self._caches = Caches([entry.name for entry in kept], shape, _DTYPES[kept[0].type], self._shared)
        self._counters = {"steps": 0, "tokens": 0, "forward_ns": 0}

    @property
    def config(self) -> ModelConfig:
        """See `Backend.config`."""
        return self._config

    @property
    def capabilities(self) -> Capabilities:
        """See `Backend.capabilities`."""
        return Capabilities(paged=False, mixed_batches=True, prefix_sharing=False, rollback=True)

    @property
    def num_blocks(self) -> int:
        """See `Backend.num_blocks`."""
        return self._blocks

    @property
    def cached_positions(self) -> int:
        """Positions that the caches of all sequences have room for."""
        return self._caches.positions

    def forward(self, batch: Sequence[Slice]) -> npt.NDArray[np.float32]:
        """See `Backend.forward`. Slices are run one after the other."""
        started = time.perf_counter_ns()
        rows = [self._run(piece) for piece in batch]
        self._counters["steps"] += 1
        self._counters["tokens"] += sum(len(piece.tokens) for piece in batch)
        self._counters["forward_ns"] += time.perf_counter_ns() - started
        return np.concatenate([np.empty((0, self._config.vocab_size), np.float32), *rows])

    def sample(self, logits: npt.NDArray[np.float32], rows: Sequence[SampleRow]) -> list[Sample]:
        """See `Backend.sample`."""
        return [draw(logits[i], row) for i, row in enumerate(rows)]

    def counters(self) -> Mapping[str, int]:
        """See `Backend.counters`: steps, tokens and nanoseconds of all `forward` together."""
        return dict(self._counters)

    def close(self) -> None:
        """Free the session and all caches; calls after it raise AttributeError."""
        for part in ("_session", "_caches"):
            self.__dict__.pop(part, None)

    def _run(self, piece: Slice) -> npt.NDArray[np.float32]:
        """Logits [rows, vocab] of one slice."""
        ids = np.array(piece.tokens, np.int64)
        if not ids.size or ids.min() < 0 or ids.max() >= self._config.vocab_size:
            raise RuntimeFailure(
                f"the step was refused: no tokens, or one outside of {self._config.vocab_size}"
            )
        total = piece.past + len(ids)
        if total > self._config.max_context:
            raise RuntimeFailure(f"the step was refused: the graph takes {self._config.max_context} tokens")
        cache = self._caches.of(piece.block_table, piece.past, total)
        first = 0 if piece.logits == "all" else len(ids) - 1
        binding = self._session.io_binding()
        binding.bind_cpu_input("input_ids", ids[None])
        binding.bind_cpu_input("attention_mask", np.ones((1, total), np.int64))
        binding.bind_cpu_input(FIRST_LOGIT, np.array([first], np.int64))
        present = self._bind_cache(binding, cache)
        binding.bind_output("logits")
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:  # as above
            raise RuntimeFailure(f"ONNX Runtime failed in a step: {error}") from error
        *made, logits = binding.get_outputs()
        cache.took({} if self._shared else dict(zip(present, made, strict=True)), total)
        found: npt.NDArray[np.float32] = logits.numpy()[0]
        return found[:0] if piece.logits == "none" else found

    def _bind_cache(self, binding: Any, cache: Cache) -> list[str]:
        """Bind past and present of every layer, in the order of the returned names of the past."""
        for name, tensor in cache.tensors.items():
            present = name.replace("past_key_values", "present")
            binding.bind_ortvalue_input(name, tensor)
            if self._shared:
                binding.bind_ortvalue_output(present, tensor)
            else:
                binding.bind_output(present)
        return list(cache.tensors)


def choose_provider(asked: str | None, available: Sequence[str]) -> str:
    """The provider that `asked` means, the CPU's for None. Raises UsageError naming those available."""
    if asked is None:
        return DEFAULT_PROVIDER
    for name in available:
        if asked.lower() in (name.lower(), name.removesuffix(_SUFFIX).lower()):
            return name
    raise UsageError(
        f"the provider {asked!r} is not installed; available are {', '.join(available)}. Others come with "
        "another build of onnxruntime, such as onnxruntime-gpu"
    )


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", "running an ONNX graph") from error
    return onnxruntime
