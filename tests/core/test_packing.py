"""Who is brought together on few nodes, when that pays, and what jobs keep as they move."""

from collections.abc import Sequence

from builders import Row, Stage, jobs_of
from dovetail.core.defragmentation import Stake, defragment
from dovetail.core.packing import Unit, arrange
from dovetail.core.placement import Interleave, Placement, Spans
from spread_physics import spread_physics

FLEX = {"elastic": True, "min_gpus": 1, "max_gpus": 8, "shareable": True}
STEPS = 2


def stage_of(cluster: str, *gpus: int, placing: str = "") -> Stage:
    """Returns a stage on which moves cost 30 s, and jobs are half as fast on many nodes."""
    rows = [Row(count, 500, **FLEX) for count in gpus]  # type: ignore[arg-type]
    physics = spread_physics(jobs_of(*rows))
    return Stage(
        rows, "dovetail", cluster, physics=physics, switching="restart:30", placing=placing
    )


def after(stage: Stage, horizon_s: float, *units: tuple[int, ...]) -> dict[int, Placement]:
    draft = stage.view.plan.draft()
    stakes = {job: Stake(1.0, horizon_s) for job in stage.view.running}
    defragment(stage.view, draft, units or [(job,) for job in stage.view.running], stakes)
    placed = dict(draft.placed)
    stage.view.plan.discard()
    return placed


def spans(placed: dict[int, Placement]) -> dict[int, Spans]:
    return {job: placement.spans for job, placement in sorted(placed.items())}


def arranged(stage: Stage, units: Sequence[Unit], *, moves: bool = True) -> dict[int, Spans]:
    stakes = {job: Stake(1.0, 1000.0) for unit in units for job in unit.jobs}
    placed = dict(arrange(stage.view, units, stakes, moves=moves).placed)
    stage.view.plan.discard()
    return spans(placed)


SPREAD = ((0, ((0, 2), (1, 2))), (1, ((0, 2),)))
FULL = (*SPREAD, (2, ((1, 2),)))


def test_a_spread_job_moves_to_one_of_its_nodes_if_that_pays() -> None:
    # Half the speed for 70 s is less than the whole for 40 s; half of 50 s is more than 20 s.
    stage = stage_of("2x4", 4, 2).run_jobs(*SPREAD)
    assert spans(after(stage, 70)) == {0: ((1, 4),), 1: ((0, 2),)}
    assert spans(after(stage, 50)) == {0: ((0, 2), (1, 2)), 1: ((0, 2),)}


def test_others_make_room_if_it_pays_for_all_together() -> None:
    # Job 1 pays 30 s as well: 2 x 30 s are lost, and half of the time of job 0 is gained.
    stage = stage_of("2x4", 4, 2, 2).run_jobs(*FULL)
    assert spans(after(stage, 130)) == {0: ((0, 4),), 1: ((1, 2),), 2: ((1, 2),)}
    assert spans(after(stage, 110)) == dict(FULL)


def test_who_is_well_placed_stays() -> None:
    stage = stage_of("2x4", 4, 3).run_jobs((0, ((0, 4),)), (1, ((1, 3),)))
    assert spans(after(stage, 1e6)) == {0: ((0, 4),), 1: ((1, 3),)}


def test_gangs_that_may_lie_anywhere_are_left_there() -> None:
    stage = stage_of("2x4", 4, 2, placing="none").run_jobs(*SPREAD)
    assert spans(after(stage, 1e6)) == dict(SPREAD)


def test_a_job_larger_than_a_node_gets_whole_nodes_of_its_own_first() -> None:
    stage = stage_of("4x4", 8, 1).run_jobs((0, ((0, 2), (1, 2), (3, 4))), (1, ((0, 1),)))
    assert spans(after(stage, 1e6)) == {0: ((3, 4), (1, 4)), 1: ((0, 1),)}


def test_jobs_on_the_same_gpus_move_together_and_keep_names_steps_and_seats() -> None:
    seats = Interleave(1, 0), Interleave(1, 1)
    ids = ((1,), (2,))
    pair = [Placement(((0, 1), (1, 1)), ids, STEPS, interleave=seat) for seat in seats]
    stage = stage_of("2x4", 2, 2).run_jobs((0, pair[0]), (1, pair[1]))
    placed = after(stage, 1000, (0, 1))
    assert [placed[job].spans for job in (0, 1)] == [((0, 2),)] * 2
    assert [placed[job].gpu_ids for job in (0, 1)] == [((0, 1),)] * 2, "GPU 1 was its own"
    assert [placed[job].accumulation_steps for job in (0, 1)] == [STEPS] * 2
    assert [placed[job].interleave for job in (0, 1)] == list(seats)


def test_units_grow_on_their_nodes_and_pairs_form_where_one_of_them_is() -> None:
    stage = stage_of("2x4", 1, 1, 1).run_jobs((0, Placement(((1, 1),), ((3,),))))
    draft = arrange(
        stage.view, [Unit((0, 2), 2, 1, (1, STEPS)), Unit((1,), 3, 1)],
        {job: Stake(1.0, 1000.0) for job in range(3)}, named=True,
    )  # fmt: skip
    assert draft.placed[0] == Placement(((1, 2),), ((0, 3),))
    assert draft.placed[2] == Placement(((1, 2),), ((0, 3),), STEPS)
    assert draft.placed[1].by_node() == {0: 3}


def test_without_moves_only_those_that_start_are_placed() -> None:
    stage = stage_of("2x4", 4, 2, 2).run_jobs(*SPREAD)
    units = [Unit((0,), 4, 1), Unit((1,), 2, 1), Unit((2,), 2, 1)]
    assert arranged(stage, units, moves=False) == dict(FULL)
    assert arranged(stage, units) == {0: ((0, 4),), 1: ((1, 2),), 2: ((1, 2),)}


def test_a_job_on_a_draining_node_stays_and_nobody_moves_there() -> None:
    stage = stage_of("3x4", 4, 4).run_jobs((0, ((0, 2), (1, 2))), (1, ((1, 2), (2, 2))))
    stage.state.change_nodes([(0, "draining")])
    assert arranged(stage, [Unit((1,), 4, 1)]) == {0: ((0, 2), (1, 2)), 1: ((2, 4),)}


def test_a_unit_without_room_gets_less_but_never_less_than_its_least() -> None:
    stage = stage_of("1x4", 4, 4)
    units = [Unit((0,), 3, 1), Unit((1,), 3, 1)]
    assert arranged(stage, units) == {0: ((0, 3),), 1: ((0, 1),)}
    assert arranged(stage, [units[0], Unit((1,), 3, 2)]) == {0: ((0, 3),)}


def test_a_repack_names_the_gpus_that_a_job_has() -> None:
    before = Placement(((0, 2),), ((1, 3),))
    stage = stage_of("1x4", 2, placing="repack").run_jobs((0, before))
    draft = arrange(stage.view, [Unit((0,), 2, 1)], {0: Stake(1.0, 100.0)}, named=True)
    assert draft.changes() == []
