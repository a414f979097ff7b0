"""Decides, before anything is read, which scheme and layout each tensor of a conversion gets.

Knows nothing of how rows are read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgeseek.architectures import ModelConfig, TensorRule
from edgeseek.checkpoints.base import Checkpoint, LazyTensor
from edgeseek.errors import UnsupportedCheckpointError
from edgeseek.package.container import Container, lay_out
from edgeseek.package.manifest import layout_for
from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS
from edgeseek.quantize.rtn import FLOAT_BYTES
from edgeseek.quantize.schemes import Scheme, stored_bytes

#: kept: the stored values; converted: from or to floats; requantized: from one quantization to another.
Action = Literal["kept", "converted", "requantized"]

#: What weights without a quantization of their own become.
DEFAULT_SCHEME: Scheme = "q8"
_EXACT_FLOAT: dict[str, Scheme] = {"F16": "f16", "F32": "f32", "BF16": "f32", "F8_E4M3": "f32"}
#: The tables of token vectors, whose rounding shows most in the output: never below 8 bits.
_TABLES = ("embed.weight", "head.weight")


@dataclass(frozen=True)
class PlannedTensor:
    """One package tensor: its rule, where it comes from, and what becomes of it.

    `exact` says that every value will be the source's.
    """

    rule: TensorRule
    source: LazyTensor
    scheme: Scheme
    layout: str
    action: Action
    exact: bool

    @property
    def size(self) -> int:
        """Stored bytes."""
        return stored_bytes(self.scheme, self.layout, self.rule.shape)


def plan_tensors(
    config: ModelConfig, rules: Sequence[TensorRule], checkpoint: Checkpoint, scheme: Scheme | None
) -> tuple[PlannedTensor, ...]:
    """A plan for each rule, in order.

    Without a `scheme`, quantized tensors are kept; so are the float matrices beside them, and where no
    matrix is quantized all become `DEFAULT_SCHEME`. With a `scheme` every matrix becomes that, except
    that for q4 the embedding and the head keep a quantization they have, or else become q8. Vectors and
    routers are f32. A quantized matrix that is stored transposed becomes `DEFAULT_SCHEME`, since its groups
    run along the other axis. Raises UnsupportedCheckpointError for a stored type that cannot be converted.
    """
    sources = {rule.name: checkpoint.tensors[rule.source] for rule in rules}
    for rule in rules:
        dtype = sources[rule.name].dtype
        known = FLOAT_BYTES if rule.role == "vector" else {**FLOAT_BYTES, **GGUF_BLOCKS}
        if dtype not in known:
            raise UnsupportedCheckpointError(
                f"{checkpoint.path}: tensor {rule.source!r} is stored as {dtype}; "
                f"it can be read from {', '.join(known)}"
            )
    quantized = any(source.dtype in GGUF_BLOCKS for source in sources.values())
    plans = []
    for rule in rules:
        source = sources[rule.name]
        chosen = _choose(rule, source.dtype, scheme, quantized)
        action, exact = _outcome(rule, source.dtype, chosen)
        layout = layout_for(rule.name, rule.shape, config)
        plans.append(PlannedTensor(rule, source, chosen, layout, action, exact))
    return tuple(plans)


def container_for(plans: Sequence[PlannedTensor]) -> Container:
    """The container that holds the planned tensors."""
    types = {"f16": "F16", "f32": "F32"}
    return lay_out([(plan.rule.name, types.get(plan.scheme, "U8"), plan.size) for plan in plans])


def _choose(rule: TensorRule, dtype: str, scheme: Scheme | None, quantized: bool) -> Scheme:
    if rule.role in ("vector", "router"):
        return "f32"
    block = GGUF_BLOCKS.get(dtype)
    spared = scheme == "q4" and rule.name in _TABLES
    if block is not None and (scheme is None or spared):
        return DEFAULT_SCHEME if _transposed(rule) else block.scheme
    if spared:
        return "q8"
    if scheme is not None:
        return scheme
    return _EXACT_FLOAT[dtype] if quantized else DEFAULT_SCHEME


def _transposed(rule: TensorRule) -> bool:
    """Whether groups of columns run along what were rows, so that no stored group survives."""
    return rule.head_rows is not None and rule.head_rows.transposed


def _outcome(rule: TensorRule, dtype: str, scheme: Scheme) -> tuple[Action, bool]:
    block = GGUF_BLOCKS.get(dtype)
    if block is not None:
        if scheme == block.scheme and not _transposed(rule):
            return "kept", True
        return ("converted" if scheme in ("f16", "f32") else "requantized"), scheme == "f32"
    if scheme == dtype.lower():
        return "kept", True
    return "converted", scheme == "f32"
