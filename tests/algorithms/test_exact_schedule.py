"""The exact solver of tiny instances, on instances whose optimum is plain."""

import pytest

from exact_schedule import least_rigid_flow_s


@pytest.mark.parametrize(
    ("release", "duration", "gpus", "pool", "flow"),
    [
        ([0], [5], [2], 2, 5),
        ([0, 0], [1, 1], [1, 1], 1, 3),
        ([0, 0], [3, 2], [1, 1], 2, 5),
        # Short first, although it is wide: 1, then both narrow ones side by side until 4.
        ([0, 0, 0], [3, 3, 1], [1, 1, 2], 2, 9),
        # The worked trace of the baselines: narrow 8 s, wide 4 s, and 2 s from second 1.
        ([0, 0, 1], [8, 4, 2], [1, 2, 1], 2, 20),
        ([7, 3], [2, 2], [1, 1], 1, 4),
        ([], [], [], 1, 0),
    ],
)
def test_the_optimum_worked_by_hand(
    release: list[int], duration: list[int], gpus: list[int], pool: int, flow: int
) -> None:
    assert least_rigid_flow_s(release, duration, gpus, pool) == flow


def test_too_many_or_too_wide_jobs_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 8"):
        least_rigid_flow_s([0] * 9, [1] * 9, [1] * 9, 3)
    with pytest.raises(ValueError, match="fit the pool"):
        least_rigid_flow_s([0], [1], [4], 3)
