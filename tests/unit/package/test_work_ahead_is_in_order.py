"""Results come in order, at most so many are begun ahead, and nothing is begun after a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from edgeseek.package.ahead import in_order


def square(i: int) -> int:
    return i * i


def test_results_are_in_order_and_calls_are_taken_as_there_is_room() -> None:
    taken = list[int]()

    def calls() -> Iterator[Callable[[], int]]:
        for i in range(20):
            taken.append(i)
            yield partial(square, i)

    with ThreadPoolExecutor(3) as pool:
        results = in_order(calls(), pool, 4)
        assert next(results) == 0
        assert taken == [0, 1, 2, 3, 4]
        assert [*results] == [i * i for i in range(1, 20)]


def test_a_failure_ends_it_and_what_has_not_begun_is_dropped() -> None:
    begun = list[int]()

    def call(i: int) -> int:
        begun.append(i)
        if i == 2:
            raise ValueError("two")
        return i

    with ThreadPoolExecutor(1) as pool:
        results = in_order((partial(call, i) for i in range(100)), pool, 4)
        with pytest.raises(ValueError, match="two"):
            list(results)
    assert max(begun) < 10
