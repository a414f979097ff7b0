"""Write a model as a GGUF for llama.cpp: python examples/write_gguf.py SOURCE OUTPUT.gguf [Q4_K_M]"""

from __future__ import annotations

import sys
from pathlib import Path

from edgeseek.export.gguf import write_gguf
from edgeseek.export.gguf_types import mixture
from edgeseek.export.source import open_source


def main() -> None:
    """Convert, then say how large the file is and what was rounded most."""
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    kind = sys.argv[3] if len(sys.argv) > 3 else "Q4_K_M"
    with open_source(Path(sys.argv[1])) as source:
        report = write_gguf(source, Path(sys.argv[2]), types=mixture(kind, source.config))
    print(f"{report.path}: {report.size:,} bytes, {report.bits_per_weight:.2f} bits a weight")
    worst = max(report.tensors, key=lambda tensor: tensor.sums.relative_rms)
    print(f"largest error: {worst.sums.relative_rms:.1%} in {worst.name} ({worst.dtype})")
    for tensor in report.narrowed:
        print(
            f"{tensor.name} became {tensor.dtype}: {tensor.wanted} needs other widths than {tensor.shape[1]}"
        )


if __name__ == "__main__":
    main()
