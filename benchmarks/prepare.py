"""Convert a checkpoint to a package once, before anything is measured, and print what to measure.

    python -m benchmarks.prepare MODEL

Prints one JSON object: the package's folder, its bytes, the instruction set in use, this machine's name and
edgeseek's version.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys

from edgeseek import _core
from edgeseek.doctor.device import recognise
from edgeseek.settings import Settings
from edgeseek.store import Store


def main() -> None:
    """Pull or import the model named on the command line."""
    settings = Settings.from_environment()
    pulled = Store(settings).pull(sys.argv[1])
    print(
        json.dumps(
            {
                "path": str(pulled.path),
                "bytes": pulled.bytes,
                "isa": settings.isa or _core.supported_isas()[0],
                "device": recognise(settings).name,
                "version": importlib.metadata.version("edgeseek"),
            }
        )
    )


if __name__ == "__main__":
    main()
