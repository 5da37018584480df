"""Placements, drafts and the plan: what the tables refuse, and what a draft can take back."""

import pytest

from builders import Row, Stage
from dovetail.core.errors import IllegalPlan
from dovetail.core.placement import Placement, Spans
from dovetail.core.plan import Change

ROWS = [Row(2, 10), Row(1, 10), Row(1, 10), Row(4, 10)]


def stage(cluster: str = "2x2") -> Stage:
    return Stage(ROWS, "fifo", cluster)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"spans": ()}, "at least one GPU"),
        ({"spans": ((0, 0),)}, "at least one GPU"),
        ({"spans": ((0, 2),), "gpu_ids": ((0,),)}, "do not match"),
        ({"spans": ((0, 2),), "gpu_ids": ((1, 1),)}, "do not match"),
        ({"spans": ((0, 1),), "accumulation_steps": 0}, "at least one step"),
        ({"spans": ((0, 2),), "fractions": (0.5,)}, "for each worker"),
        ({"spans": ((0, 2),), "fractions": (0.5, 0.0)}, "for each worker"),
        ({"spans": ((0, 1),), "fractions": (3.0,)}, "for each worker"),
        ({"spans": ((0, 1),), "fractions": (float("nan"),)}, "for each worker"),
        ({"spans": ((0, 2),), "samples": (4, 4, 4)}, "for each worker"),
        ({"spans": ((0, 2),), "samples": (4, 0)}, "for each worker"),
        ({"spans": ((0, 1), (0, 1)), "gpu_ids": ((0,), (0,))}, "do not match"),
    ],
)
def test_a_placement_that_makes_no_sense_cannot_be_made(
    fields: dict[str, object], words: str
) -> None:
    with pytest.raises(IllegalPlan, match=words):
        Placement(**fields)  # type: ignore[arg-type]


def test_a_placement_counts_and_names_its_workers() -> None:
    spread = Placement(((1, 2), (0, 1)), gpu_ids=((3, 0), (2,)))
    assert spread.gpus == 3
    assert list(spread.named()) == [(1, 3), (1, 0), (0, 2)]


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        (((0, 3),), r"job 3: wants 3 GPUs on node 0, 2 are free"),
        (((2, 1),), r"job 3: node 2 does not exist"),
        (((-1, 1),), r"job 3: node -1 does not exist"),
        (((0, 1), (1, 1), (0, 2)), r"job 3: wants 3 GPUs on node 0, 2 are free"),
    ],
)
def test_the_tables_refuse_what_cannot_be_placed_and_take_nothing(spans: Spans, words: str) -> None:
    plan = stage().view.plan
    draft = plan.draft()
    with pytest.raises(IllegalPlan, match=words):
        draft.place(3, spans)
    assert draft.changes() == []
    assert draft.occupancy.free == [2, 2]
    assert draft.free_gpus == 4


def test_a_node_may_come_twice_in_the_order_of_ranks() -> None:
    draft = stage().view.plan.draft()
    draft.place(3, ((0, 1), (1, 2), (0, 1)))
    assert draft.placed[3].gpus == 4
    assert draft.placed[3].nodes == 2
    assert draft.occupancy.free == [0, 0]
    draft.remove(3)
    assert draft.occupancy.free == [2, 2]


def test_a_placement_that_is_half_free_takes_nothing() -> None:
    draft = stage().view.plan.draft()
    draft.place(1, ((1, 1),))
    with pytest.raises(IllegalPlan):
        draft.place(3, ((0, 2), (1, 2)))
    assert draft.occupancy.free == [2, 1]


def test_a_named_gpu_must_exist() -> None:
    draft = stage().view.plan.draft()
    with pytest.raises(IllegalPlan, match="no GPU 2 on node 0"):
        draft.place(1, Placement(((0, 1),), ((2,),)))


def test_a_move_that_fails_leaves_the_job_where_it_was() -> None:
    draft = stage().run_jobs((0, ((0, 2),)), (1, ((1, 1),))).view.plan.draft()
    with pytest.raises(IllegalPlan):
        draft.place(0, ((1, 2),))
    assert draft.placed[0] == Placement(((0, 2),))
    assert draft.occupancy.free == [0, 1]
    assert draft.changes() == []


def test_changes_are_net_and_in_order_of_job() -> None:
    draft = stage().run_jobs((0, ((0, 2),)), (1, ((1, 1),))).view.plan.draft()
    draft.place(2, ((1, 1),))
    draft.remove(0)
    draft.remove(1)
    draft.place(1, ((1, 1),))
    draft.place(0, ((0, 2),))
    assert draft.changes() == [Change(2, None, Placement(((1, 1),)))]


def test_putting_a_job_where_it_is_changes_nothing() -> None:
    draft = stage().run_jobs((0, ((0, 2),))).view.plan.draft()
    draft.place(0, ((0, 2),))
    assert draft.changes() == []


def test_starting_and_stopping_in_one_draft_changes_nothing() -> None:
    draft = stage().view.plan.draft()
    draft.place(0, ((0, 2),))
    draft.remove(0)
    assert draft.changes() == []


def test_a_repack_costs_only_what_moved() -> None:
    draft = stage().run_jobs((0, ((0, 2),)), (1, ((1, 1),))).view.plan.repack()
    assert draft.placed == {}
    assert draft.occupancy.free == [2, 2]
    draft.place(0, ((0, 2),))
    draft.place(2, ((1, 1),))
    assert draft.changes() == [
        Change(1, Placement(((1, 1),)), None),
        Change(2, None, Placement(((1, 1),))),
    ]


def test_an_abandoned_repack_leaves_the_running_plan_alone() -> None:
    plan = stage().run_jobs((0, ((0, 2),))).view.plan
    plan.repack().place(1, ((0, 1),))
    plan.discard()
    assert dict(plan.placed) == {0: Placement(((0, 2),))}
    assert plan.occupancy.free == [0, 2]


def test_a_draft_goes_back_to_a_savepoint() -> None:
    draft = stage().run_jobs((0, ((0, 2),))).view.plan.draft()
    draft.place(1, ((1, 1),))
    mark = draft.savepoint()
    draft.remove(0)
    draft.place(3, ((0, 2), (1, 1)))
    draft.undo_to(mark)
    assert draft.placed == {0: Placement(((0, 2),)), 1: Placement(((1, 1),))}
    assert draft.occupancy.free == [0, 1]
    draft.rollback()
    assert draft.placed == {0: Placement(((0, 2),))}
    assert draft.occupancy.free == [0, 2]


def test_only_the_newest_draft_can_become_the_plan() -> None:
    plan = stage().view.plan
    first = plan.draft()
    second = plan.draft()
    second.place(0, ((0, 2),))
    with pytest.raises(IllegalPlan, match="the plan moved"):
        plan.commit(first)
    plan.commit(second)
    assert plan.version == 1
    with pytest.raises(IllegalPlan, match="the plan moved"):
        plan.commit(second)


def test_two_jobs_on_one_named_gpu_hold_it_once() -> None:
    draft = stage().view.plan.draft()
    shared = Placement(((0, 1),), ((1,),))
    draft.place(1, shared)
    draft.place(2, shared)
    assert draft.occupancy.free == [1, 2]
    assert draft.occupancy.sharers(0, 1) == (1, 2)
    assert draft.occupancy.idle_ids(0, 2) == (0,)
    draft.remove(1)
    assert draft.occupancy.free == [1, 2]
    draft.remove(2)
    assert draft.occupancy.free == [2, 2]
    assert draft.occupancy.sharers(0, 1) == ()


def test_counted_and_named_gpus_of_a_node_add_up() -> None:
    draft = stage().view.plan.draft()
    draft.place(1, Placement(((0, 1),), ((0,),)))
    draft.place(2, ((0, 1),))
    with pytest.raises(IllegalPlan, match="wants 1 GPUs on node 0, 0 are free"):
        draft.place(0, Placement(((0, 1), (1, 1)), ((1,), (0,))))
    draft.place(0, Placement(((0, 1), (1, 1)), ((0,), (0,))))
    assert draft.occupancy.free == [0, 1]


def test_what_runs_does_not_change_under_an_open_draft() -> None:
    plan = stage().run_jobs((0, ((0, 2),))).view.plan
    for draft in (plan.draft(), plan.repack()):
        seen = dict(plan.placed)
        if 0 in draft.placed:
            draft.remove(0)
        draft.place(1, ((1, 1),))
        assert dict(plan.placed) == seen == {0: Placement(((0, 2),))}
    plan.commit(draft)
    assert dict(plan.placed) == {1: Placement(((1, 1),))}
    # The twin follows: the next draft starts from what runs.
    assert plan.draft().placed == {1: Placement(((1, 1),))}
    plan.remove(1)
    assert plan.draft().placed == {}
