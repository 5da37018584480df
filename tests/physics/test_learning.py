"""Policies under a belief that learns: a new job is grown first and shrunk by what is measured.

The world below is the simulator whose jobs report their true rates every two seconds; it wakes
the policy when the belief changed, as the live one does.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from builders import Row, Story, jobs_of, play, play_scene, scene_of, trace_of
from curved_physics import CurvedPhysics
from dovetail.core.beliefs import Neighbour
from dovetail.core.messages import Started
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Policy
from dovetail.core.reading import Reading
from dovetail.core.view import View
from dovetail.physics.learning import Learning
from dovetail.physics.linear import LinearPhysics
from dovetail.physics.sharing import Injected
from dovetail.sim.world import SimWorld

REPORT_S = 2.0
PER_S = 100.0
"""Samples a second of every job alone as requested."""


class Reporting:
    """A simulated world whose jobs report; the belief learns from them."""

    def __init__(self, world: SimWorld, learning: Learning, truth: CurvedPhysics) -> None:
        self._world, self._learning, self._truth = world, learning, truth
        self._report_s = REPORT_S

    def advance(self, until: float) -> bool:
        while self._world.advance(min(until, self._report_s)):
            view = self._world.observe()
            learned = view.now >= self._report_s and self._hear(view)
            view.changes.woke = learned or view.now >= until
            c = view.changes
            if c.woke or c.arrived or c.ended:
                return True
        return False

    def _hear(self, view: View) -> bool:
        self._report_s = view.now + REPORT_S
        learned = False
        for job, placement in view.running.items():
            beside = self._neighbours(view, job)
            if view.progress.running_since_s(job) < view.now:
                rate = PER_S * self._truth.speed(job, placement, beside)
                learned |= self._learning.observe(job, placement, beside, Reading(rate))
        view.physics = self._learning.physics
        return learned

    def _neighbours(self, view: View, job: int) -> Sequence[Neighbour]:
        mine = set(view.running[job].named())
        return [
            (other, there)
            for other, there in view.running.items()
            if other != job and mine & set(there.named())
        ]

    def observe(self) -> View:
        return self._world.observe()

    def apply(self, draft: Draft) -> None:
        self._world.apply(draft)

    def in_time(self, took_s: float) -> bool:
        return True

    def refuse(self, policy: Policy, why: Sequence[str], cause: Exception | None = None) -> float:
        return self._world.refuse(policy, why, cause)

    def note(self, decision: Decision) -> None:
        self._world.note(decision)


def learned(rows: Sequence[Row], curves: Sequence[Sequence[float]], policy: str) -> Story:
    """Plays rows whose true speeds are `curves` on four GPUs; the belief begins as linear."""
    trace = trace_of(*rows)
    truth = CurvedPhysics(trace.jobs, curves)
    learning = Learning(LinearPhysics(trace.jobs), trace.jobs)
    scene = scene_of(trace, "1x4", truth=truth, belief=learning.physics)
    return play_scene(scene, policy, lambda world: Reporting(world, learning, truth))


def shares(story: Story, job: int) -> list[tuple[float, int]]:
    """Returns from when on a job had how many GPUs."""
    placed = [f for f in story.facts if isinstance(f, Started) and f.job == job]
    return [(f.t, f.placement.gpus) for f in placed]


def elastic(model: str, duration_s: float, submit_s: float = 0.0) -> Row:
    return Row(1, duration_s, submit_s, elastic=True, max_gpus=4, model=model)


POOR, GOOD = (1.0, 1.1, 1.12, 1.13), (1.0, 1.9, 2.8, 3.6)


@pytest.mark.parametrize("policy", ["afs-l", "afs-p", "optimus"])
def test_a_job_that_gains_little_is_grown_first_and_shrunk_by_what_was_measured(
    policy: str,
) -> None:
    rows = [elastic("poor", 300.0), elastic("good", 300.0)]
    story = learned(rows, [POOR, GOOD], policy)
    blind = play(rows, policy, "1x4", truth=CurvedPhysics(jobs_of(*rows), [POOR, GOOD]),
                 belief=LinearPhysics(jobs_of(*rows)))  # fmt: skip
    first, second = shares(story, 0)[:2]
    assert first[1] > 1, "a linear guess gives it more than one"
    assert second == (3 * REPORT_S, 1), "the third report is believed: it gains nothing"
    assert 3 in [gpus for t, gpus in shares(story, 1) if t <= 6 * REPORT_S]
    assert story.finishes[1] < 120 < 150 < blind.finishes[1]


def test_each_number_of_gpus_is_tried_at_most_once_and_the_best_is_kept() -> None:
    hump = (1.0, 1.7, 1.6, 1.2)
    story = learned([elastic("hump", 300.0)], [hump], "afs-l")
    assert [gpus for _, gpus in shares(story, 0)] == [4, 1, 2]


def test_the_next_job_of_a_model_is_not_measured_again() -> None:
    rows = [elastic("hump", 100.0), elastic("hump", 100.0, submit_s=200.0)]
    story = learned(rows, [(1.0, 1.7, 1.6, 1.2)] * 2, "afs-l")
    assert [gpus for _, gpus in shares(story, 1)] == [2]


def test_who_was_measured_to_disturb_each_other_is_not_paired_again() -> None:
    row = Row(1, 100.0, shareable=True, model="m")
    rows = [replace(row, submit_s=t) for t in (0.0, 50.0, 400.0, 450.0)]
    trace = trace_of(*rows)
    truth = CurvedPhysics(trace.jobs, [[1.0]] * 4, interference_of=Injected(1.9))
    learning = Learning(LinearPhysics(trace.jobs, Injected(1.05)), trace.jobs)
    scene = scene_of(trace, "1x1", truth=truth, belief=learning.physics)
    story = play_scene(scene, "sjf-bsbf", lambda world: Reporting(world, learning, truth))
    starts = [story.starts(job)[0][0] for job in range(4)]
    assert starts[:2] == [0.0, 50.0], "by the guess they share"
    assert starts[2:] == [400.0, 500.0], "by what was measured they do not"
