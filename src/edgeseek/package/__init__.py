"""The on-disk model: format 1 (FORMAT.md), its atomic writer, its verifying reader, conversion into it.

Knows nothing of the engine, nor of how a tokenizer is built. What only an import or a check needs is
imported on first use, so that a model starts without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeseek.lazy import imported_later
from edgeseek.package.reader import Package, PackedTensor, is_package, open_package

if TYPE_CHECKING:
    from edgeseek.package.conversion import convert
    from edgeseek.package.summary import ConversionReport
    from edgeseek.package.verify import verify_package
    from edgeseek.package.writer import remove_abandoned

__all__ = [
    "ConversionReport",
    "Package",
    "PackedTensor",
    "convert",
    "is_package",
    "open_package",
    "remove_abandoned",
    "verify_package",
]

__getattr__ = imported_later(
    __name__,
    {
        "ConversionReport": "summary",
        "convert": "conversion",
        "remove_abandoned": "writer",
        "verify_package": "verify",
    },
)
