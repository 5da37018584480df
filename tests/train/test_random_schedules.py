"""Jobs under a controller that never lets them be train as if nothing had happened.

Real controller, agents and workers; a policy that draws plans, and deaths of all of them.
"""

import pytest

pytest.importorskip("torch")

from shuffled_cluster import ShuffledCluster


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_job_that_is_never_left_alone_trains_as_in_an_ordinary_loop(seed: int) -> None:
    cluster = ShuffledCluster(seed, 1, steps=60, decisions=6, freezes=False)
    assert cluster.play() == [], "\n".join(cluster.tale)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 60))
def test_jobs_that_share_and_are_never_left_alone_train_as_in_an_ordinary_loop(seed: int) -> None:
    cluster = ShuffledCluster(
        seed, 1 + seed % 2, steps=200, decisions=20, freezes=seed % 3 == 0
    )  # fmt: skip
    assert cluster.play() == [], "\n".join(cluster.tale)
