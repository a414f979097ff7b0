"""The on-disk model: format 1 (FORMAT.md), its atomic writer, its verifying reader, conversion into it.

Knows nothing of the engine, nor of how a tokenizer is built.
"""

from __future__ import annotations

from edgeseek.package.convert import convert
from edgeseek.package.reader import Package, PackedTensor, open_package
from edgeseek.package.summary import ConversionReport
from edgeseek.package.verify import verify_package
from edgeseek.package.writer import remove_abandoned

__all__ = [
    "ConversionReport",
    "Package",
    "PackedTensor",
    "convert",
    "open_package",
    "remove_abandoned",
    "verify_package",
]
