"""Inverse frequencies of rotary position embeddings, the same bits on every machine."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

from edgeseek.architectures.spec import Rope


def inverse_frequencies(rope: Rope, head_dim: int) -> npt.NDArray[np.float32]:
    """theta^(-2i / head_dim) / factor for i in [0, head_dim / 2), as binary32 (arXiv 2104.09864, eq. 15).

    Decimal arithmetic keeps the last bit independent of the C library. `factor` divides for kind
    "linear" only, which equals dividing positions by it (position interpolation, arXiv 2306.15595).
    """
    with localcontext() as context:
        context.prec = 40
        theta = Decimal(rope.theta)
        factor = Decimal(rope.factor) if rope.kind == "linear" else Decimal(1)
        values = [theta ** (Decimal(-2 * i) / head_dim) / factor for i in range(head_dim // 2)]
    return np.array([float(v) for v in values], dtype=np.float64).astype(np.float32)
