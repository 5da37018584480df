"""Stars: seats that the rule of GIMBAL section 5.1 allows, and an invariant over packings."""

import random
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.mechanisms.sharing.named_gpus import neighbours
from dovetail.mechanisms.sharing.stars import (
    MEMBERS_MAX,
    StarSeats,
    keeps_stars,
    stars_of,
)


def named(*gpus: tuple[int, int]) -> Placement:
    nodes = dict.fromkeys(node for node, _ in gpus)
    ids = tuple(tuple(g for n, g in gpus if n == node) for node in nodes)
    return Placement(tuple((n, len(i)) for n, i in zip(nodes, ids, strict=True)), ids)


def staged(sizes: list[int], cluster: str) -> tuple[Stage, Draft]:
    stage = Stage([Row(g, 10.0, shareable=True) for g in sizes], "lucid", cluster)
    return stage, stage.view.plan.draft()


def test_several_smaller_jobs_share_with_one_larger_job() -> None:
    stage, draft = staged([4, 2, 1, 1], "1x4")
    draft.place(0, named((0, 0), (0, 1), (0, 2), (0, 3)))
    for job, gpus in ((1, [0, 1]), (2, [2]), (3, [3])):
        placement = named(*((0, g) for g in gpus))
        assert keeps_stars(stage.view, draft, job, placement)
        draft.place(job, placement)
    star = stars_of(draft)
    assert [s.members for s in star] == [(0, 1, 2, 3)]


def test_a_job_that_shares_with_a_larger_one_shares_with_nobody_else() -> None:
    # Job 1 lies half under job 0; job 2 may not lie over its other half.
    stage, draft = staged([4, 2, 1], "1x5")
    draft.place(0, named((0, 0), (0, 1), (0, 2), (0, 3)))
    draft.place(1, named((0, 3), (0, 4)))
    assert not keeps_stars(stage.view, draft, 2, named((0, 4)))
    assert keeps_stars(stage.view, draft, 2, named((0, 0)))


def test_a_large_job_does_not_chain_two_sets() -> None:
    # Job 0 shares with job 1 already: job 2 may not lie over job 1 or 0 and a third one.
    stage, draft = staged([2, 1, 4, 1], "1x6")
    draft.place(0, named((0, 0), (0, 1)))
    draft.place(1, named((0, 0)))
    draft.place(3, named((0, 2)))
    assert not keeps_stars(stage.view, draft, 2, named((0, 1), (0, 2), (0, 3), (0, 4)))
    assert keeps_stars(stage.view, draft, 2, named((0, 2), (0, 3), (0, 4), (0, 5)))


def test_equals_share_all_their_gpus_or_none() -> None:
    stage, draft = staged([2, 2, 1], "1x4")
    draft.place(0, named((0, 0), (0, 1)))
    assert not keeps_stars(stage.view, draft, 1, named((0, 1), (0, 2)))
    assert keeps_stars(stage.view, draft, 1, named((0, 0), (0, 1)))
    draft.place(2, named((0, 0)))
    assert not keeps_stars(stage.view, draft, 1, named((0, 0), (0, 1)))


def test_a_third_job_finds_no_gpu_of_two() -> None:
    stage, draft = staged([2, 1, 1], "1x2")
    draft.place(0, named((0, 0), (0, 1)))
    draft.place(1, named((0, 0)))
    assert not keeps_stars(stage.view, draft, 2, named((0, 0)))


def test_who_is_spread_without_need_shares_with_nobody() -> None:
    stage, draft = staged([2, 1, 2], "2x2")
    draft.place(0, named((0, 0), (1, 0)))
    assert not keeps_stars(stage.view, draft, 1, named((0, 0)))
    assert keeps_stars(stage.view, draft, 1, named((0, 1)))


def test_a_large_job_starts_over_small_ones_and_free_gpus() -> None:
    stage, draft = staged([1, 2, 4], "1x4")
    draft.place(0, named((0, 0)))
    draft.place(1, named((0, 1), (0, 2)))
    seats = StarSeats(stage.view, draft, lambda job: 0.0, unequal=True)
    assert seats.start(2, lambda host: True)
    assert [s.members for s in stars_of(draft)] == [(2, 0, 1)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_random_packings_keep_every_set_a_star(seed: int, unequal: bool) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([1, 1, 2, 2, 3, 4, 8]) for _ in range(20)]
    cluster = draw.choice(["2x4", "3x2", "1x8", "1x4+2x2"])
    stage, draft = staged(sizes, cluster)
    dislikes = {(draw.randrange(20), draw.randrange(20)) for _ in range(60)}
    seats = StarSeats(stage.view, draft, lambda job: float(-job % 7), unequal=unequal)
    find = stage.view.placing.find
    for job in range(20):
        spans = find(draft.occupancy, stage.view.shape(job))
        if spans is not None and draw.random() < 0.7:
            ids = tuple(draft.occupancy.idle_ids(node, n) for node, n in spans)
            draft.place(job, Placement(spans, ids))
        else:
            seats.start(job, partial(_likes, dislikes, job))
        if draw.random() < 0.2 and draft.placed:
            draft.remove(draw.choice(sorted(draft.placed)))
            seats = StarSeats(stage.view, draft, lambda job: 0.0, unequal=unequal)
    _all_are_stars(draft, unequal)


def _likes(dislikes: set[tuple[int, int]], job: int, host: int) -> bool:
    return (job, host) not in dislikes


def _all_are_stars(draft: Draft, unequal: bool) -> None:
    """Checks the rule of section 5.1 pair by pair, without the code under test."""
    placed = draft.placed
    near = {job: neighbours(draft, job, p) for job, p in placed.items()}
    for holders in draft.occupancy.named.values():
        assert len(holders) <= 2
    for job, others in near.items():
        assert len(others) < MEMBERS_MAX
        for other in others:
            if placed[job].gpus == placed[other].gpus:
                assert set(placed[job].named()) == set(placed[other].named())
                assert near[job] == {other} and near[other] == {job}
            else:
                assert unequal
                smaller = min(job, other, key=lambda j: placed[j].gpus)
                assert len(near[smaller]) == 1
    in_sets = sum(len(s.members) for s in stars_of(draft))
    assert in_sets == sum(bool(others) for others in near.values())
