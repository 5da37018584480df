"""A policy that does not declare `length` gets no length, by any way the view offers.

The ways: `progress.left_s`, `progress.length_s`, `progress.running().left_s`, `ends`,
`waiting.first_behind` (both by an order `by_length`), and an order whose keys ask for any of them.
The table of jobs, the physics, the plan and the memory hold none; that nothing reaches a policy
through them is shown by playing each policy twice with other lengths.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

import dovetail.policies  # registers the policies
from builders import Row, Scene, Stage, Story, play_scene, policy_of, scene_of, trace_of
from dovetail.core.errors import DovetailError
from dovetail.core.job import JobRequest, JobTable
from dovetail.core.messages import Ended, Submitted
from dovetail.core.order import Order
from dovetail.core.policy import Decision, registered
from dovetail.core.view import View
from dovetail.forecast.forecasts import Known
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected

assert dovetail.policies
BLIND = sorted(
    name
    for name, found in registered().items()
    if found.module.startswith("dovetail.policies.")
    and "length" not in policy_of(name).knows
    and name != "no-op"
)
BY_SUBMISSION = Order(lambda view, jobs: [0.0] * len(jobs))


@dataclass(frozen=True)
class Asks:
    """Declares nothing, and asks."""

    ask: Callable[[View], object]
    order: Order = BY_SUBMISSION
    name = "asks"
    knows: frozenset[str] = frozenset()
    powers: frozenset[str] = frozenset()
    initial: object = None

    def decide(self, view: View, memory: object) -> Decision:
        self.ask(view)
        return Decision(None)


@pytest.mark.parametrize(
    "ask",
    [
        lambda view: view.progress.left_s([0]),
        lambda view: view.progress.length_s([1]),
        lambda view: view.progress.left_s([]),
        lambda view: view.progress.running().left_s,
    ],
)
def test_whoever_asks_for_a_length_undeclared_is_stopped(ask: Callable[[View], object]) -> None:
    stage = Stage([Row(1, 10), Row(1, 20)], Asks(ask), "1x4").run_jobs((0, ((0, 1),)))

    with pytest.raises(DovetailError, match="reads lengths, which it does not declare"):
        stage.policy.decide(stage.view, None)


def test_no_ends_and_no_index_of_lengths_are_made_for_whoever_does_not_declare_them() -> None:
    stage = Stage([Row(1, 10), Row(1, 20)], Asks(lambda view: None), "1x4")

    assert stage.view.ends is None
    with pytest.raises(AssertionError, match="does not index lengths"):
        stage.view.waiting.first_behind(0, 15.0, -1)


def test_an_order_by_length_is_refused_to_whoever_does_not_declare_it() -> None:
    by_length = Order(lambda view, jobs: [0.0] * len(jobs), by_length=True)

    with pytest.raises(DovetailError, match="does not declare"):
        Stage([Row(1, 10)], Asks(lambda view: None, by_length), "1x4")


@pytest.mark.parametrize("verb", ["left_s", "length_s"])
def test_an_order_whose_keys_are_lengths_is_refused_as_well(verb: str) -> None:
    sly = Order(lambda view, jobs: getattr(view.progress, verb)(jobs))

    with pytest.raises(DovetailError, match="does not declare"):
        Stage([Row(1, 10)], Asks(lambda view: None, sly), "1x4")


def test_the_table_of_jobs_says_what_users_asked_for_and_no_length() -> None:
    """A time limit and a deadline are the user's own words; a length is not among the columns."""
    said = {name for kind in (JobRequest, JobTable) for name in (f.name for f in fields(kind))}

    assert not {name for name in said if any(w in name for w in ("length", "duration", "left"))}


def crowd(seed: int = 3) -> Scene:
    """Returns two dozen drawn jobs on eight GPUs, that share and resize."""
    drawn = np.random.default_rng(seed)
    rows = [
        Row(
            int(drawn.choice([1, 1, 2, 4])),
            float(drawn.uniform(50, 900)),
            submit_s=10.0 * i,
            elastic=bool(i % 2),
            min_gpus=1,
            max_gpus=4,
            shareable=True,
        )
        for i in range(24)
    ]
    trace = trace_of(
        *(r if r.elastic else replace(r, min_gpus=r.gpus, max_gpus=r.gpus) for r in rows)
    )
    return scene_of(trace, "2x4", truth=linear_physics(trace.jobs, Injected(1.3)))


def happened(story: Story) -> list[object]:
    """Returns all facts but submissions, which tell the forecast."""
    return [fact for fact in story.facts if not isinstance(fact, Submitted)]


@pytest.mark.parametrize("name", BLIND)
def test_a_policy_that_declares_none_does_the_same_whatever_is_forecast(name: str) -> None:
    scene, nonsense = crowd(), np.random.default_rng(9).uniform(1, 5000, 24)

    told = happened(play_scene(scene, name))
    misled = happened(play_scene(replace(crowd(), forecast=Known(nonsense)), name))

    assert misled == told


@pytest.mark.parametrize("name", BLIND)
def test_a_policy_that_declares_none_does_the_same_until_a_job_ends(name: str) -> None:
    """The truth reaches nobody either: other true lengths show only in when jobs end."""
    scene = crowd()
    longer = replace(scene.trace, duration_s=scene.trace.duration_s * 1.5)
    truth = linear_physics(longer.jobs, Injected(1.3))

    here = happened(play_scene(scene, name))
    there = happened(play_scene(scene_of(longer, "2x4", truth=truth), name))

    first_s = min(f.t for f in here if isinstance(f, Ended))
    before = [fact for fact in here if fact.t < first_s]
    assert before and before == [fact for fact in there if fact.t < first_s]
