"""Work on a few things ahead of the one that is wanted, delivered in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")


def in_order(calls: Iterable[Callable[[], T]], pool: Executor, ahead: int) -> Iterator[T]:
    """Results of `calls`, in order; at most `ahead` are worked on beyond the one delivered.

    A call is taken from `calls` when there is room for it. Raises what a call raises; those that have not
    begun are then dropped, as they are where the caller stops.
    """
    pending: deque[Future[T]] = deque()
    try:
        for call in calls:
            pending.append(pool.submit(call))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
