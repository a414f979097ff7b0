"""Which loops of llama.cpp's aarch64 kernels do the work of ours, and how they nest.

Its sources are compiled in a folder of the caller's, with the flags of its own build for armv8.2-a+dotprod.
The number of times that an inner loop runs is read from its source; the multiply-accumulates that follow from
it are checked against the shape.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.loops import Instruction, find_loops


@dataclass(frozen=True)
class PeerLoop:
    """One iteration of `function`'s loop over blocks: `macs` products; `trips` of loops inside, by level."""

    scheme: str
    source: str
    rows: int
    function: str
    macs: int
    trips: tuple[int, ...] = ()


# Blocks have 32 columns (the plain dot products take two at a time) or 256 (K types), tiles 4 or 8 channels.
PEER_LOOPS = (
    PeerLoop("q4", "packed", 1, "ggml_gemv_q4_0_4x4_q8_0", 32 * 4),
    PeerLoop("q4", "packed", 1, "ggml_gemv_q4_0_4x8_q8_0", 32 * 4),
    PeerLoop("q4", "packed", 1, "ggml_vec_dot_q4_0_q8_0", 32 * 2),
    PeerLoop("q4", "packed", 4, "ggml_gemm_q4_0_4x4_q8_0", 32 * 4 * 4),
    PeerLoop("q4", "unpacked", 16, "ggml_gemm_q4_0_4x4_q8_0", 32 * 4 * 16),
    PeerLoop("q4z", "packed", 1, "ggml_vec_dot_q4_1_q8_1", 32 * 2),
    PeerLoop("q8", "packed", 1, "ggml_gemv_q8_0_4x4_q8_0", 32 * 4),
    PeerLoop("q8", "packed", 1, "ggml_gemv_q8_0_4x8_q8_0", 32 * 4),
    PeerLoop("q8", "packed", 1, "ggml_vec_dot_q8_0_q8_0", 32 * 2),
    PeerLoop("q8", "packed", 4, "ggml_gemm_q8_0_4x4_q8_0", 32 * 4 * 4),
    PeerLoop("q8", "unpacked", 4, "ggml_gemm_q8_0_4x4_q8_0", 32 * 4 * 4),
    PeerLoop("q4k", "packed", 1, "ggml_gemv_q4_K_8x4_q8_K", 256 * 8, (4, 2)),
    PeerLoop("q4k", "packed", 1, "ggml_gemv_q4_K_8x8_q8_K", 256 * 8, (4, 2)),
    PeerLoop("q4k", "packed", 1, "ggml_vec_dot_q4_K_q8_K", 256),
    PeerLoop("q4k", "packed", 4, "ggml_gemm_q4_K_8x4_q8_K", 256 * 8 * 4, (4, 2)),
    PeerLoop("q4k", "unpacked", 4, "ggml_gemm_q4_K_8x4_q8_K", 256 * 8 * 4, (4, 2)),
    PeerLoop("q6k", "packed", 1, "ggml_gemv_q6_K_8x4_q8_K", 256 * 8, (2, 4)),
    PeerLoop("q6k", "packed", 1, "ggml_gemv_q6_K_8x8_q8_K", 256 * 8, (2, 4)),
    PeerLoop("q6k", "packed", 1, "ggml_vec_dot_q6_K_q8_K", 256),
    PeerLoop("q6k", "packed", 4, "ggml_gemm_q6_K_8x4_q8_K", 256 * 8 * 4, (2, 4)),
    PeerLoop("q6k", "unpacked", 4, "ggml_gemm_q6_K_8x4_q8_K", 256 * 8 * 4, (2, 4)),
)


def compile_llamacpp(ggml: Path, target: Path) -> list[Path]:
    """Compile its aarch64 kernels into `target`. Raises CalledProcessError with the compiler's words."""
    flags = ["-O3", "-DNDEBUG", "-fPIC", "-march=armv8.2-a+dotprod", "-D_GNU_SOURCE", "-DGGML_USE_CPU_REPACK"]
    flags += [f"-I{ggml / folder}" for folder in ("include", "src", "src/ggml-cpu")]
    objects = []
    for compiler, name in (("g++", "repack.cpp"), ("gcc", "quants.c")):
        made = target / f"{name}.o"
        source = ggml / "src/ggml-cpu/arch/arm" / name
        command = [f"aarch64-linux-gnu-{compiler}", *flags, "-c", str(source), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        objects.append(made)
    return objects


def peer_loop(
    wanted: PeerLoop, functions: dict[str, list[Instruction]], products: dict[str, int]
) -> list[Instruction]:
    """The instructions of one iteration. Raises ValueError if no loop has the expected products."""
    code = functions.get(wanted.function, [])
    traces = [
        loop.trace(wanted.trips)
        for loop in (find_loops(code) if code else [])
        if loop.depth() == len(wanted.trips)
    ]
    fitting = [t for t in traces if sum(products.get(i.mnemonic, 0) for i in t) == wanted.macs]
    if not fitting:
        raise ValueError(f"{wanted.function} has no loop of {wanted.macs} products; was llama.cpp changed?")
    return min(fitting, key=len)
