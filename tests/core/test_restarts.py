"""When a job whose program starts anew for it gets more GPUs, or fewer."""

import pytest

from builders import Row, Stage, play
from dovetail.core.resizing import adjust
from dovetail.core.restarts import growth_due_s, may_grow, next_growth_s
from dovetail.core.switching import own_cost_s
from dovetail.core.units import LONG_AGO_S, NEVER_S

ANY = {"elastic": True, "min_gpus": 1, "max_gpus": 4}
POLICIES = ("max-min", "afs-p:unit-s=3600", "afs-l", "afs-s", "optimus")


def lone(seconds: float = 1000.0, **rest: float) -> Stage:
    row = Row(1, seconds, **{"restart_s": 30.0, **ANY, **rest})  # type: ignore[arg-type]
    stage = Stage([row, Row(1, 10.0, **ANY)], "afs-l", "1x4")  # type: ignore[arg-type]
    return stage.run_jobs((0, ((0, 2),)))


def test_a_job_grows_once_it_has_kept_its_gpus_for_as_long_as_two_restarts_need_to_pay() -> None:
    stage = lone()
    # From 2 to 3 GPUs it gains half its speed: 30 s pay after 60 s, and both restarts after 120.
    assert growth_due_s(stage.view, 0) == 120.0
    assert not may_grow(stage.view, 0)
    assert next_growth_s(stage.view) == 120.0


def test_a_job_whose_resizes_are_no_restarts_may_always_grow() -> None:
    stage = lone(restart_s=0.0)
    assert growth_due_s(stage.view, 0) == LONG_AGO_S
    assert may_grow(stage.view, 0)
    assert next_growth_s(stage.view) == NEVER_S


def test_with_little_left_a_restart_does_not_pay() -> None:
    # 1,000 s on 2 GPUs take 500, on 4 half of it; 100 s take 50, and 25 less is less than 30.
    assert [may_grow(later(lone(s)).view, 0) for s in (1000.0, 100.0)] == [True, False]


def later(stage: Stage) -> Stage:
    stage.at(200.0)
    return stage


def test_a_job_that_must_not_grow_yet_keeps_its_gpus_and_others_start() -> None:
    stage = lone()
    draft = adjust(stage.view, {0: 3, 1: 1})
    assert {job: p.gpus for job, p in draft.placed.items()} == {0: 2, 1: 1}


def test_a_job_shrinks_for_one_that_waits_and_not_for_one_that_runs() -> None:
    waits = lone()
    assert adjust(waits.view, {0: 1, 1: 3}).placed[0].gpus == 1
    none = lone().run_jobs((1, ((0, 1),)))
    assert adjust(none.view, {0: 1, 1: 2}).placed[0].gpus == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_restarts_a_job_at_every_event(policy: str) -> None:
    # A job of an hour, and a short one every minute.
    short = [Row(1, 20.0, 60.0 * n) for n in range(1, 30)]
    with_price = [Row(1, 3600.0, restart_s=30.0, **ANY), *short]  # type: ignore[arg-type]
    free = [Row(1, 3600.0, **ANY), *short]  # type: ignore[arg-type]
    often = play(free, policy, "1x4", switching="restart:30")
    seldom = play(with_price, policy, "1x4", switching="restart:30")
    assert 1 < len(seldom.starts(0)) <= len(often.starts(0)) / 2
    # Both pay 30 s for each. It ends a third sooner, and the others no later.
    assert seldom.finishes[0] < 0.7 * often.finishes[0]
    assert seldom.finishes[1:] == often.finishes[1:]


def test_it_costs_its_own_price_and_trains_on_nowhere_meanwhile() -> None:
    rows = [Row(2, 400.0, restart_s=45.0, **{**ANY, "max_gpus": 4})]  # type: ignore[arg-type]
    story = play([*rows, Row(2, 10.0)], "max-min", "1x4", switching="restart:5,prepared:10")
    resize = next(f for f in story.facts if getattr(f, "how", "") == "resize")
    assert (resize.from_s - resize.t, resize.preparing) == (45.0, 0)


@pytest.mark.parametrize(
    ("how", "cost_s"), [("start", 5.0), ("adjust", 5.0), ("resize", 9.0), ("resume", 9.0)]
)
def test_a_price_of_its_own_is_that_of_a_restart(how: str, cost_s: float) -> None:
    assert own_cost_s(how, 5.0, 9.0) == cost_s
    assert own_cost_s(how, 5.0, 0.0) == 5.0
