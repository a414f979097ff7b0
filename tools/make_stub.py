"""Write src/edgeseek/_core.pyi from the installed extension, or check that it is current.

    make_stub.py [--check]

With --check nothing is written; the exit code is 1 where the stub differs from the extension.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

STUB = Path(__file__).resolve().parent.parent / "src" / "edgeseek" / "_core.pyi"


def generate() -> str:
    """The stub's text, as nanobind's generator derives it from the extension's signatures and docstrings."""
    from nanobind.stubgen import StubGen

    module = importlib.import_module("edgeseek._core")
    generator = StubGen(module, recursive=False, include_docstrings=True, include_private=False)
    generator.put(module)
    return str(generator.get())


def main() -> int:
    """Write or check; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing, fail where the stub is out of date"
    )
    options = parser.parse_args()
    text = generate()
    if not options.check:
        STUB.write_text(text, encoding="utf-8")
        return 0
    if not STUB.exists() or STUB.read_text(encoding="utf-8") != text:
        print(f"{STUB} is out of date; run: make stub", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
