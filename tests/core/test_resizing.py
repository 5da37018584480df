"""From shares to placements: who keeps which GPUs when shares change."""

from collections.abc import Mapping

from builders import Row, Stage
from dovetail.core.placement import Placement, Spans
from dovetail.core.resizing import reshare

FLEX = {"elastic": True, "min_gpus": 1, "max_gpus": 8}


def after(stage: Stage, shares: Mapping[int, int]) -> dict[int, Spans]:
    draft = reshare(stage.view, shares)
    spans = {job: p.spans for job, p in sorted(draft.placed.items())}
    stage.view.plan.discard()
    return spans


def flexible(n: int, cluster: str, placing: str = "") -> Stage:
    return Stage([Row(1, 5, **FLEX)] * n, "max-min", cluster, placing=placing)  # type: ignore[arg-type]


def test_an_unchanged_share_moves_nobody() -> None:
    stage = flexible(2, "2x4").run_jobs((0, ((0, 3), (1, 1))), (1, ((1, 3),)))
    assert reshare(stage.view, {0: 4, 1: 3}).changes() == []


def test_a_smaller_share_leaves_the_smallest_spans_first() -> None:
    stage = flexible(1, "3x4").run_jobs((0, ((0, 3), (1, 1), (2, 2))))
    assert after(stage, {0: 4}) == {0: ((0, 3), (2, 1))}
    assert after(stage, {0: 3}) == {0: ((0, 3),)}
    assert after(stage, {0: 1}) == {0: ((0, 1),)}


def test_a_smaller_share_leaves_gpus_that_are_still_made_ready_first() -> None:
    # It trains on one GPU of node 0, and four more of node 1 are made ready: without this rule it
    # would give up the one, and start anew on the others.
    stage = flexible(1, "2x4").run_jobs((0, ((0, 1),)))
    state, trained, grown = stage.state, Placement(((0, 1),)), Placement(((0, 1), (1, 4)))
    state.expansions.follow_workers()
    draft = stage.view.plan.draft()
    draft.place(0, grown)
    [change] = state.plan.commit(draft)
    state.begin_switch(change, "resize", begin_s=0.0, trains_on=True)
    state.start(0, grown, 1.0, 0.0)
    assert stage.view.expanding[0].training == trained
    assert after(stage, {0: 4}) == {0: ((0, 1), (1, 3))}
    assert after(stage, {0: 1}) == {0: ((0, 1),)}
    state.expansions.carry_out(0, 0.0)
    assert after(stage, {0: 4}) == {0: ((1, 4),)}


def test_a_larger_share_fills_its_own_nodes_first() -> None:
    stage = flexible(2, "2x4").run_jobs((0, ((1, 2),)), (1, ((0, 1),)))
    assert after(stage, {0: 4, 1: 1}) == {0: ((1, 4),), 1: ((0, 1),)}
    assert after(stage, {0: 6, 1: 1}) == {0: ((1, 4), (0, 2)), 1: ((0, 1),)}


def test_what_one_job_gives_up_another_may_take() -> None:
    stage = flexible(2, "1x4").run_jobs((0, ((0, 3),)), (1, ((0, 1),)))
    assert after(stage, {0: 1, 1: 3}) == {0: ((0, 1),), 1: ((0, 3),)}


def test_a_job_without_a_share_does_not_run() -> None:
    stage = flexible(3, "1x4").run_jobs((0, ((0, 3),)), (1, ((0, 1),)))
    assert after(stage, {1: 1, 2: 3}) == {1: ((0, 1),), 2: ((0, 3),)}
    assert after(stage, {0: 0, 1: 4}) == {1: ((0, 4),)}


def test_a_gang_that_may_not_be_spread_is_placed_anew_to_grow() -> None:
    stage = flexible(2, "2x4", "strict").run_jobs((0, ((0, 2),)), (1, ((0, 2),)))
    assert after(stage, {0: 2, 1: 4}) == {0: ((0, 2),), 1: ((1, 4),)}


def test_a_gang_that_cannot_grow_in_one_place_stays_as_it_is() -> None:
    stage = flexible(3, "2x4", "strict").run_jobs((0, ((0, 2),)), (1, ((0, 2),)), (2, ((1, 2),)))
    assert after(stage, {0: 2, 1: 4, 2: 2}) == {0: ((0, 2),), 1: ((0, 2),), 2: ((1, 2),)}


def test_a_share_without_room_is_tried_smaller() -> None:
    stage = flexible(3, "2x2", "strict").run_jobs((0, ((0, 1),)), (1, ((1, 1),)))
    assert after(stage, {0: 1, 1: 1, 2: 2}) == {0: ((0, 1),), 1: ((1, 1),), 2: ((0, 1),)}


def test_a_repack_serves_the_largest_share_first() -> None:
    stage = flexible(2, "2x4", "strict,repack").run_jobs((0, ((0, 1),)))
    assert after(stage, {0: 1, 1: 4}) == {0: ((1, 1),), 1: ((0, 4),)}


def test_a_job_on_a_draining_node_keeps_what_it_has_until_the_node_is_back() -> None:
    stage = flexible(2, "3x4").run_jobs((0, ((0, 2),)), (1, ((0, 1), (1, 2))))
    stage.state.change_nodes([(0, "draining")])
    for shares in ({0: 4, 1: 1}, {1: 4}, {}):
        assert after(stage, shares) == {0: ((0, 2),), 1: ((0, 1), (1, 2))}
    stage.state.change_nodes([(0, "up")])
    assert after(stage, {0: 3}) == {0: ((0, 3),)}
