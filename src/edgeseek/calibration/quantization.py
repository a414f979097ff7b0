"""What a quantization is asked to do, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from edgeseek.calibration.divergence import Divergence
from edgeseek.calibration.statistics import MAX_TOKENS
from edgeseek.quantize.recipe import Recipe

Method = Literal["rtn", "awq", "gptq"]
Format = Literal["package", "gguf", "onnx"]


@dataclass(frozen=True)
class Job:
    """What to make of what.

    `recipe` None is the built-in int4. `text` is what to calibrate on, None for none; `percentile` caps
    outliers of the inputs seen (None takes them as they are). `measure` is a text that the output is
    compared with the source on. `max_positions` is ONNX's longest sequence.
    """

    source: Path
    output: Path
    recipe: Recipe | None = None
    #: What the built-in int4 may use a weight, on average; None for INT4_BITS, and for other recipes.
    bits: float | None = None
    method: Method = "rtn"
    format: Format = "package"
    text: str | None = None
    tokens: int = MAX_TOKENS
    percentile: float | None = None
    measure: str | None = None
    max_positions: int | None = None
    threads: int | None = None
    force: bool = False


@dataclass(frozen=True)
class TensorLine:
    """What became of a matrix. `wanted` is the recipe's scheme, `stored` what its columns allowed."""

    name: str
    shape: tuple[int, ...]
    source: str
    wanted: str
    stored: str
    size: int
    kept: bool
    #: Relative RMS error of the weights.
    error: float

    @property
    def bits(self) -> float:
        """Stored bits a weight, scales and padding included."""
        return 8 * self.size / (self.shape[0] * self.shape[1])


@dataclass
class Outcome:
    """What was written and, where it was measured, what it lost."""

    name: str
    output: Path
    format: Format
    recipe: str
    method: Method
    tokens: int = 0
    observer: str = "minmax"
    size: int = 0
    source_size: int = 0
    tensors: list[TensorLine] = field(default_factory=list)
    divergence: Divergence | None = None
    #: Whether the reference of `divergence` was itself rounded to 8 bits, to fit the memory.
    reference: str = ""
    #: Matrices that gptq rounded without a Hessian.
    without_statistics: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of a matrix's weight, on average."""
        weights = sum(line.shape[0] * line.shape[1] for line in self.tensors)
        return 8 * sum(line.size for line in self.tensors) / max(weights, 1)

    @property
    def narrowed(self) -> list[TensorLine]:
        """Matrices whose columns did not fill the blocks of the scheme that was asked for."""
        return [line for line in self.tensors if line.wanted != line.stored]
