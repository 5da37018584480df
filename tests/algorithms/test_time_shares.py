"""Gavel's linear programme: by hand, and groups against one variable for each job."""

import random

import numpy as np
import pytest

from dovetail.algorithms.time_shares import Sharers, SharingGroup, time_shares


def test_one_gpu_is_divided_by_what_each_has_left() -> None:
    # 30 and 10 left: three quarters and one quarter of the time; both end together at 40.
    shares = time_shares([SharingGroup(1, 1, 30.0), SharingGroup(1, 1, 10.0)], [], 1)
    assert shares.alone == pytest.approx([0.75, 0.25])
    assert shares.target == pytest.approx(1 / 40)


def test_a_pair_that_gains_runs_together_as_long_as_both_need() -> None:
    # Together .8 each: after t together the longer goes on alone; .8 t = 10 s, t = 12.5 s, and
    # 20 s alone: 32.5 s in all. Shares of that time: 12.5/32.5 together, 20/32.5 alone.
    groups = [SharingGroup(1, 1, 30.0), SharingGroup(1, 1, 10.0)]
    shares = time_shares(groups, [Sharers(0, 1, 1, 0.8, 0.8)], 1)
    assert 1 / shares.target == pytest.approx(32.5)
    assert shares.together == pytest.approx([12.5 / 32.5])
    assert shares.alone == pytest.approx([20 / 32.5, 0.0])


def test_what_is_left_over_is_used() -> None:
    # The long job sets the pace; the short one may run all the time on the other GPU.
    shares = time_shares([SharingGroup(1, 1, 100.0), SharingGroup(1, 1, 1.0)], [], 2)
    assert shares.alone == pytest.approx([1.0, 1.0])


def test_a_large_job_with_several_guests_takes_its_own_gpus_only() -> None:
    # 4 GPUs; beside four small jobs at .9 each the large one runs at .7, all the time.
    groups = [SharingGroup(1, 4, 0.7), SharingGroup(4, 1, 0.9)]
    shares = time_shares(groups, [Sharers(0, 1, 4, 0.7, 0.9)], 4)
    assert shares.target == pytest.approx(1.0)
    assert shares.together == pytest.approx([1.0])


@pytest.mark.parametrize("seed", range(20))
def test_alike_jobs_may_share_a_variable(seed: int) -> None:
    draw = random.Random(seed)
    kinds = [(draw.choice([1, 2]), draw.uniform(1, 9), draw.uniform(0.2, 1)) for _ in range(4)]
    counts = [draw.randint(1, 4) for _ in kinds]
    groups = [SharingGroup(n, gpus, need) for n, (gpus, need, _) in zip(counts, kinds, strict=True)]
    of = [k for k, n in enumerate(counts) for _ in range(n)]
    single = [SharingGroup(1, kinds[k][0], kinds[k][1]) for k in of]

    def speed(k: int, m: int) -> float:
        return 1 / max(1.0, kinds[k][2] + kinds[m][2])

    def pairs(members: list[int], same: bool) -> list[Sharers]:
        return [
            Sharers(i, j, 1, speed(k, m), speed(k, m))
            for i, k in enumerate(members)
            for j, m in enumerate(members)
            if kinds[k][0] == kinds[m][0] and (i < j or (same and i == j and counts[k] > 1))
        ]

    grouped = time_shares(groups, pairs([0, 1, 2, 3], same=True), 5)
    apart = time_shares(single, pairs(of, same=False), 5)
    assert grouped.target == pytest.approx(apart.target, rel=1e-6)


def test_nobody_runs_more_than_all_the_time_nor_more_gpus_than_there_are() -> None:
    draw = np.random.default_rng(3)
    groups = [
        SharingGroup(3, int(g), float(n)) for g, n in zip([1, 2, 4], draw.random(3), strict=True)
    ]
    pairs = [Sharers(i, i, 1, 0.7, 0.7) for i in range(3)]
    shares = time_shares(groups, pairs, 6)
    time = shares.alone + 2 * shares.together / 3
    assert (time <= 1 + 1e-9).all()
    gpus = sum(3 * a * g.gpus + t * g.gpus for a, t, g in zip(*shares[1:], groups, strict=True))
    assert gpus <= 6 + 1e-9
