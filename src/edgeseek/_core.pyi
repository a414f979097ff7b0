"""
The native core: packed weights, paged attention, sampling. Knows nothing of text, files or HTTP.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def supported_isas() -> list[str]:
    """
    Instruction sets that this machine and build support, fastest first; the last is 'scalar'.
    """

class ThreadPool:
    """The compute threads, the caller included."""

    def __init__(self, threads: int, cpus: Sequence[int] = []) -> None:
        """
        With `cpus`, the threads and whoever runs a step on them stay on those processors.
        """

    @property
    def size(self) -> int: ...

class KvPool:
    """
    KV cache of `blocks` blocks of 32 positions, allocated once; `type` is 'f16' or 'int8'.
    """

    def __init__(self, layers: int, kv_heads: int, head_dim: int, blocks: int, type: str = 'f16', latent: bool = False) -> None:
        """
        `latent`: one plane of `head_dim` values a token, which all heads read; kv_heads is 1 then.
        """

    @property
    def blocks(self) -> int: ...

    @property
    def block_bytes(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def release(self, blocks: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
        """
        Gives the pages of unused blocks back to the system; returns the bytes that were in memory. They read as zeros until written again. Raises ValueError for a block that there is not.
        """

class Model:
    """
    A decoder-only transformer over mapped, packed tensors, which it keeps alive.
    """

    def __init__(self, *, layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, head_dim: int, vocab: int, rms_eps: float, tied_embeddings: bool, inverse_frequencies: Sequence[float], windows: Sequence[int], tensors: Sequence[tuple[str, str, str, int, int, Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]]], rotary_scale: float = 1.0, moe: dict[str, object] | None = None, latent: dict[str, object] | None = None) -> None:
        """
        Tensors are (name, scheme, layout, rows, columns, bytes). `rotary_scale` multiplies cosines and sines; `moe` holds the fields of architectures.spec.MoE, `latent` those of LatentAttention and softmax_scale. Raises ValueError naming what does not fit.
        """

    def populate(self) -> None:
        """
        Maps the weights' pages, in the order in which a step reads them. Releases the GIL.
        """

    def lock(self) -> int:
        """
        Keeps the weights' pages in memory until they are unmapped. Returns 0 or the errno of mlock. Releases the GIL.
        """

    @property
    def bytes_per_token(self) -> int:
        """Bytes of weights that decoding one token reads."""

class SweepMemory:
    """Memory that bandwidth is measured on, written once."""

    def __init__(self, bytes: int) -> None: ...

    @property
    def bytes(self) -> int: ...

    def sweep(self, threads: ThreadPool, offset: int = 0) -> float:
        """
        Bytes per second of one read-only sweep, every load `offset` bytes (0 to 63) after a 64-byte boundary. Releases the GIL.
        """

def int8_peak(threads: ThreadPool, isa: str | None = None, seconds: float = 0.5) -> float:
    """
    Multiply-accumulates per second of independent chains of int8 dot products on all threads. Releases the GIL.
    """

class Runner:
    """
    Runs steps of a model over a KV pool on a thread pool; not thread-safe.
    """

    def __init__(self, model: Model, pool: KvPool, threads: ThreadPool, isa: str | None, max_tokens: int) -> None: ...

    def forward(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], slice_tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], slice_past: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], table_sizes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], logit_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], taps: Sequence[str]) -> tuple[Annotated[NDArray[numpy.float32], dict(shape=(None, None))], dict[str, Annotated[NDArray[numpy.float32], dict(shape=(None, None))]]]:
        """
        One step. Returns (logits [len(logit_rows), vocab], {tap: [rows, width]}). Raises ValueError on a token, position, block or row out of range, before anything is written. Releases the GIL.
        """

    @property
    def isa(self) -> str: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def buffer_bytes(self) -> int: ...

    def tap_names(self) -> list[str]: ...

    def expert_steps(self) -> list[int]:
        """
        [layer * experts + expert]: the number of the last step, from 1 on, that ran the expert, 0 for none.
        """

    def counters(self) -> dict[str, int]: ...

def dequantize(scheme: str, layout: str, rows: int, columns: int, data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], wanted: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
    """Rows `wanted` of a packed matrix as float32 [len(wanted), columns]."""

def sample(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, temperature: float, top_k: int, top_p: float, min_p: float, repetition_penalty: float, presence_penalty: float, frequency_penalty: float, seen_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], output_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], output_counts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], bias_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], bias_values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], seed: int, position: int, top_logprobs: int) -> tuple[int, float, list[int], list[float]]:
    """
    Draws one token: (token, logprob, top_ids, top_logprobs). The fields are those of runtime.backend.SampleRow.
    """
