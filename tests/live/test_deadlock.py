"""Who waits for whom in circles."""

from collections.abc import Mapping

import pytest

from dovetail.live.workers.deadlock import deadlocked


@pytest.mark.parametrize(
    ("waits_for", "found"),
    [
        ({}, []),
        ({1: {2}, 2: {3}}, []),
        ({1: {1}}, []),
        ({1: {2}, 2: {1}}, [1, 2]),
        ({1: {2}, 2: {3}, 3: {1}, 4: {1}, 3000: set()}, [1, 2, 3]),
        ({1: {2}, 2: {1, 5}, 5: {6}}, [1, 2]),
        ({1: {2}, 2: {1, 3}, 3: {4}, 4: {5}, 5: {4}}, [1, 2, 3, 4, 5]),
    ],
)
def test_only_circles_are_tangled(waits_for: Mapping[int, set[int]], found: list[int]) -> None:
    assert deadlocked(waits_for) == found
