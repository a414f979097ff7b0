"""One file per API. Each has a `router`; paths that need no key are in its `OPEN_PATHS`."""

from __future__ import annotations

import importlib
import pkgutil

from fastapi import FastAPI


def include_all(app: FastAPI) -> frozenset[str]:
    """Add the routers of all modules of this package; returns the paths that need no key."""
    open_paths: set[str] = set()
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if found.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{found.name}")
        app.include_router(module.router)
        open_paths.update(getattr(module, "OPEN_PATHS", ()))
    return frozenset(open_paths)
