"""`python -m edgeseek` is the `edgeseek` command."""

from __future__ import annotations

import sys

from edgeseek.cli import main

if __name__ == "__main__":
    sys.exit(main())
