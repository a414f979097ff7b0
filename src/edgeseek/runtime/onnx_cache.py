"""Keys and values of the sequences that the `onnx` backend knows, as ONNX Runtime's own tensors.

A sequence is named by the first block of its table and has its tensors to itself. The other blocks are the
engine's books: when a block turns up in another table, whoever had it has given up the positions from there
on, and its tensors are cut. So the caches together never hold more than the pool's positions, but for what
rounds each up to a multiple of `GRAIN`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeseek.errors import RuntimeFailure
from edgeseek.runtime.backend import BLOCK_TOKENS

#: Positions by which a shared buffer grows.
GRAIN = 256

#: (KV heads, dimensions of a head).
Shape = tuple[int, int]


class Cache:
    """One sequence: a tensor [1, kv heads, positions, head_dim] for each layer's keys and values.

    Where the graph writes into the past's own buffer the tensors have room for `capacity` positions, of
    which `length` are filled; else they hold exactly `length`.
    """

    def __init__(self, names: Sequence[str], shape: Shape, dtype: npt.DTypeLike, shared: bool) -> None:
        self._names, self._shape, self._dtype = names, shape, np.dtype(dtype)
        self._shared = shared
        self.length = 0
        self.tensors = {name: self._tensor(self._empty(0)) for name in names}
        self.capacity = 0
        self.table: tuple[int, ...] = ()

    def prepare(self, past: int, total: int) -> None:
        """Make `past` positions the whole of it, with room for `total` where there is a shared buffer.

        Raises RuntimeFailure where fewer are known.
        """
        if past > self.length:
            raise RuntimeFailure(f"the step goes on from token {past}, and {self.length} are in the cache")
        if self._shared:
            self.length = past
            if total > self.capacity:
                self._resize(-(-total // GRAIN) * GRAIN)
        else:
            self.cut(past)

    def cut(self, length: int) -> None:
        """Forget what is beyond `length` positions."""
        if length >= self.length:
            return
        self.length = length
        if self._shared:
            self._resize(-(-length // GRAIN) * GRAIN)
        else:
            self._resize(length)

    def took(self, tensors: dict[str, Any], length: int) -> None:
        """Note what a step has left: the tensors where they are not shared, and how many positions."""
        self.tensors.update(tensors)
        self.length = length

    def _resize(self, capacity: int) -> None:
        for name in self._names:
            grown = self._empty(capacity)
            grown[:, :, : self.length] = self.tensors[name].numpy()[:, :, : self.length]
            self.tensors[name] = self._tensor(grown)
        self.capacity = capacity

    def _empty(self, positions: int) -> npt.NDArray[Any]:
        heads, dims = self._shape
        return np.zeros((1, heads, positions, dims), self._dtype)

    @staticmethod
    def _tensor(values: npt.NDArray[Any]) -> Any:
        import onnxruntime

        return onnxruntime.OrtValue.ortvalue_from_numpy(values)


class Caches:
    """The caches of all sequences. `names`, `shape`, `dtype`, `shared`: see `Cache`."""

    def __init__(self, names: Sequence[str], shape: Shape, dtype: npt.DTypeLike, shared: bool) -> None:
        self._make = partial(Cache, names, shape, dtype, shared)
        self._caches: dict[int, Cache] = {}
        #: Whose table a block was last seen in, and where.
        self._owners: dict[int, tuple[int, int]] = {}

    def of(self, table: Sequence[int], past: int, total: int) -> Cache:
        """The cache of the sequence with this table, at `past` positions, ready for `total`.

        Raises RuntimeFailure where the sequence is not known.
        """
        key = table[0]
        if past == 0:
            self._forget(key)
            self._caches[key] = self._make()
        elif key not in self._caches:
            raise RuntimeFailure(f"the step goes on from token {past} of a sequence that is not known")
        cache = self._caches[key]
        self._claim(key, cache, tuple(table))
        cache.prepare(past, total)
        return cache

    def _claim(self, key: int, cache: Cache, table: tuple[int, ...]) -> None:
        self._disown(key, set(cache.table) - set(table))
        for index, block in enumerate(table):
            owner, place = self._owners.get(block, (key, index))
            if owner != key:
                if place == 0:
                    self._forget(owner)
                else:
                    self._shorten(owner, place)
            self._owners[block] = key, index
        cache.table = table

    def _forget(self, key: int) -> None:
        cache = self._caches.pop(key, None)
        if cache is not None:
            self._disown(key, cache.table)

    def _shorten(self, key: int, blocks: int) -> None:
        """Leave a sequence its first `blocks` blocks."""
        cache = self._caches[key]
        cache.cut(blocks * BLOCK_TOKENS)
        self._disown(key, cache.table[blocks:])
        cache.table = cache.table[:blocks]

    def _disown(self, key: int, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self._owners.get(block, (None, 0))[0] == key:
                del self._owners[block]

    @property
    def positions(self) -> int:
        """Positions that all caches have room for."""
        return sum(max(cache.capacity, cache.length) for cache in self._caches.values())
