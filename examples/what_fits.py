"""What fits on a board: plan a model's config.json for it, and list what would fit where it does not.

python examples/what_fits.py path/to/config.json rpi5-8g 32768
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgeseek.errors import DoesNotFitError
from edgeseek.memory.alternatives import Wish, alternatives
from edgeseek.memory.boards import machine_for
from edgeseek.memory.footprint import footprint_of
from edgeseek.settings import Settings


def main(model: str, device: str = "this", context: str = "") -> None:
    """Print the plan of `model`, a path, on `device`, or what fits instead."""
    limits, threads = machine_for(device, Settings.from_environment())
    wish = Wish(footprint_of(Path(model)), limits, threads, context=int(context) if context else None)
    try:
        print(wish.plan().summary)
    except DoesNotFitError as error:
        print(error)
        for other in alternatives(wish):
            print(f"{other.options}: {other.plan.needed:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
