"""The packages on this machine: list, find, open, remove, and import of what is not a package yet.

A package lives in `settings.packages_dir`, in a folder named for its source and, where one was asked for,
its scheme. Knows nothing of running a model.
"""

from __future__ import annotations

from edgeseek.store.store import Progress, Pulled, Store, StoredModel

__all__ = ["Progress", "Pulled", "Store", "StoredModel"]
