"""Muri-S and Muri-L: who takes turns with whom, when, on which GPUs, and who never does."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

from builders import Facts, Row, Story, play_scene, policy_of, scene_of, trace_of
from dovetail.conformance import JOBS, PLACINGS, PolicyConformance, small_scene
from dovetail.control.loop import run as run_loop
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.messages import Fact, Started, Stopped
from dovetail.core.policy import Policy
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld
from staged_physics import staged_physics

STORAGE, CPU, GPU, NETWORK = (3, 1, 1, 1), (1, 3, 1, 1), (1, 1, 3, 1), (1, 1, 1, 3)
MIX = (STORAGE, CPU, GPU, NETWORK, (0, 0, 4, 2))
EVENTS = "muri-s:tick-s=0"
VARIANTS = (
    "muri-s",
    "muri-l:tick-s=0,merge-order=class,ties=gpus",
    "muri-l:tick-s=20,always-group=true,autopack=false",
    "muri-s:tick-s=0,group-limit=2,ordering=worst",
    "muri-l:tick-s=0,group-limit=3,matching=priority,orderings=consecutive",
)


def staged(
    rows: Sequence[Row],
    policy: str,
    cluster: Cluster | str,
    stages: Sequence[Sequence[float]],
    **options: object,
) -> Story:
    """Plays rows whose job i takes the stages of kind `batch_size` - 1, or of its number."""
    trace = trace_of(*rows)
    kinds = [r.batch_size - 1 if r.batch_size else i for i, r in enumerate(rows)]
    physics = staged_physics(trace.jobs, stages, kinds)
    return play_scene(scene_of(trace, cluster, truth=physics, **options), policy)  # type: ignore[arg-type]


def together(story: Story, t: float) -> list[tuple[int, ...]]:
    """Returns the sets that were made at an instant."""
    seats: dict[int, list[int]] = {}
    for fact in story.facts:
        if isinstance(fact, Started) and fact.t == t and fact.placement.interleave:
            seats.setdefault(fact.placement.interleave.set_id, []).append(fact.job)
    return sorted(tuple(sorted(jobs)) for jobs in seats.values())


def share(gpus: int, duration_s: float, submit_s: float = 0.0, **more: object) -> Row:
    """Returns a job whose owner allows sharing."""
    return Row(gpus, duration_s, submit_s, shareable=True, **more)  # type: ignore[arg-type]


def test_two_jobs_that_fill_each_other_s_gaps_take_turns_at_full_speed() -> None:
    # Stages (4, 0, 4, 0) two phases apart: both resources are busy all the time, cycle 8 s.
    rows = [share(1, 80), share(1, 80)]
    story = staged(rows, EVENTS, "1x1", [(4, 0, 4, 0)] * 2)
    assert together(story, 0.0) == [(0, 1)]
    assert story.finishes == [80, 80]


def test_worked_example_9_four_gpus_of_demand_on_one() -> None:
    # Long stages of 3 s meet in one phase: the cycle is 3 + 1 + 1 + 1 = 6 s, an iteration alone.
    rows = [share(1, 60) for _ in range(4)]
    story = staged(rows, EVENTS, "1x1", MIX[:4])
    assert together(story, 0.0) == [(0, 1, 2, 3)]
    assert story.finishes == [60, 60, 60, 60]


def test_jobs_run_alone_while_there_are_gpus_for_all() -> None:
    rows = [share(1, 60) for _ in range(4)]
    story = staged(rows, EVENTS, "1x4", MIX[:4])
    assert story.finishes == [60] * 4
    assert not together(story, 0.0)


def test_the_partners_of_a_job_that_ended_go_on_together() -> None:
    rows = [share(1, 12), share(1, 60), share(1, 60), share(1, 60)]
    story = staged(rows, EVENTS, "1x1", MIX[:4])
    assert story.finishes == [12, 60, 60, 60]
    assert not story.of(Stopped)


def test_muri_s_takes_the_least_remaining_service_and_muri_l_the_least_attained() -> None:
    rows = [Row(2, 100), Row(2, 30, submit_s=10)]
    stages = [(4, 0, 0, 0)] * 2
    assert staged(rows, EVENTS, "1x2", stages).finishes == [130, 40]
    by_service = staged(rows, "muri-l:tick-s=10", "1x2", stages)
    assert by_service.stops(0)[0] == (10, "preempted")
    # At 20 s both have run for 10 s: the tie goes to job 0.
    assert by_service.stops(1)[0] == (20, "preempted")


def test_between_ticks_nothing_starts_and_nothing_stops() -> None:
    rows = [share(1, 100), share(1, 50, submit_s=30), share(1, 500, submit_s=361)]
    story = staged(rows, "muri-s", "1x2", [(4, 0, 0, 0)] * 3)
    assert story.starts(0) == [(0.0, "start")]
    assert story.starts(1) == [(360.0, "start")]
    assert story.starts(2) == [(720.0, "start")]
    assert story.finishes == [100, 410, 1220]


def test_a_group_that_stays_the_same_is_left_alone() -> None:
    rows = [
        share(2, 900),
        share(2, 900),
        share(2, 2000, submit_s=100),
        share(2, 2000, submit_s=100),
    ]
    story = staged(rows, "muri-s", "1x4", [STORAGE, CPU, STORAGE, CPU])
    assert story.starts(0) == [(0.0, "start"), (360.0, "adjust")]
    assert story.starts(1)[0] == (0.0, "start")
    assert not story.of(Stopped)


def test_who_does_not_allow_sharing_or_has_no_known_stages_runs_alone() -> None:
    rows = [Row(1, 50), share(1, 60), share(1, 70), share(1, 80)]
    story = staged(rows, EVENTS, "1x2", [STORAGE, CPU, (0, 0, 0, 0), NETWORK])
    for fact in story.of(Started):
        assert isinstance(fact, Started)
        assert fact.job not in (0, 2) or fact.placement.interleave is None
    assert together(story, 50.0) == [(1, 3)] or (1, 3) in together(story, 0.0)


def test_jobs_that_run_alone_take_a_slot_each_and_make_nobody_else_share() -> None:
    # Job 3 finds no slot beside 0, 1 and 2, so that the three that were taken fit unshared.
    rows = [share(1, 10), share(1, 10), Row(2, 100), Row(2, 100)]
    story = staged(rows, EVENTS, "1x4", [STORAGE, CPU, GPU, NETWORK])
    assert not together(story, 0.0)
    assert story.finishes == [10, 10, 100, 110]


def test_of_equal_keys_those_of_most_gpus_come_first_but_who_has_just_come_last() -> None:
    held = Row(2, 10, preemptible=False)
    by_gpus = "muri-l:tick-s=0,ties=gpus,group-limit=1"
    stages = [(4, 0, 0, 0)] * 3
    # All that wait have run for no time. At 10 s job 2 has waited, or comes just then.
    waited = staged([held, Row(1, 5, 1), Row(2, 5, 2)], by_gpus, "1x2", stages)
    assert [waited.starts(job)[0][0] for job in (1, 2)] == [15, 10]
    comes = staged([held, Row(1, 5, 1), Row(2, 5, 10)], by_gpus, "1x2", stages)
    assert [comes.starts(job)[0][0] for job in (1, 2)] == [10, 15]


def test_who_may_not_be_stopped_keeps_its_gpus_and_its_partners() -> None:
    rows = [
        share(2, 500, preemptible=False),
        share(2, 10, submit_s=1),
        share(2, 10, submit_s=2),
    ]
    story = staged(rows, EVENTS, "1x2", [STORAGE, CPU, GPU])
    assert story.finishes == [500, 510, 510]
    assert not story.of(Stopped)
    rows = [share(1, 60, preemptible=False), share(1, 60), share(1, 10, submit_s=20)]
    story = staged(rows, EVENTS, "1x1", [STORAGE, CPU, GPU])
    assert together(story, 0.0) == [(0, 1)]
    assert story.finishes == [60, 60, 70]
    assert not story.of(Stopped)


def test_jobs_that_do_not_fit_into_memory_together_wait_for_each_other() -> None:
    rows = [share(1, 10), share(1, 20)]
    trace = trace_of(*rows)
    physics = staged_physics(trace.jobs, [STORAGE, CPU], held_bytes=[(9e9, 1e9), (9e9, 1e9)])
    cluster = Cluster.parse("1x1")
    memory = cluster.groups[0].gpu_memory_bytes
    assert 10e9 < memory < 19e9
    story = play_scene(scene_of(trace, cluster, truth=physics), EVENTS)
    assert story.finishes == [10, 30]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("group-limit=5", "group-limit is 1 to 4 members, not 5"),
        ("group-limit=0", "1 to 4 members"),
        ("tick-s=-1", "tick-s is a number of seconds .* not -1"),
        ("tick-s=0.001", "tick-s is a number of seconds from 1 on, or 0 for every event"),
        ("matching=lots", "matching is blossom or priority"),
        ("merge-order=first", "merge-order is efficiency or class"),
        ("ordering=middle", "ordering is best or worst"),
        ("orderings=some", "orderings is all or consecutive"),
        ("ties=coin", "ties is submission or gpus"),
    ],
)
def test_senseless_parameters_are_refused(wrong: str, why: str) -> None:
    for name in ("muri-s", "muri-l"):
        with pytest.raises(InputError, match=why):
            policy_of(f"{name}:{wrong}")


class Interleaving(PolicyConformance):
    """The suite of every policy, with jobs of five kinds whose stages are known."""

    policy: ClassVar[str] = ""

    def _play(self, scene: Scene, policy: Policy) -> list[Fact]:
        from dataclasses import replace

        jobs = scene.trace.jobs
        physics = staged_physics(jobs, MIX, (np.arange(len(jobs)) * 7 % len(MIX)).tolist())
        facts: list[Fact] = []

        class Recorder:
            def record(self, new: Sequence[Fact]) -> None:
                facts.extend(new)

        staged_scene = replace(scene, truth=physics, belief=physics)
        run_loop(SimWorld(staged_scene, policy, Recorder()), policy)
        return facts

    def test_jobs_do_take_turns_under_every_placement(self) -> None:
        for placing in PLACINGS:
            facts = self._play(small_scene(self.seeds[0], placing=placing), self._built())
            seated = {f.job for f in facts if isinstance(f, Started) and f.placement.interleave}
            assert len(seated) > JOBS // 4, f"{placing}: {sorted(seated)}"


for _number, _policy in enumerate(VARIANTS):
    _name = f"TestInterleaving{_number}"
    globals()[_name] = type(_name, (Interleaving,), {"policy": _policy})
del Interleaving


@pytest.mark.parametrize("policy", ["muri-s:tick-s=0", "muri-l:tick-s=30"])
@pytest.mark.parametrize("cluster", ["2x4:a100+1x4:v100", "2x4:a100+2x2:v100"])
def test_types_of_gpus_and_lost_nodes_lose_no_job(policy: str, cluster: str) -> None:
    types = ("", "", "v100", "a100")
    rows = [
        share([1, 2, 1, 4][i % 4], 10 + 7 * (i % 5), i, gpu_type=types[i % 4], batch_size=1 + i % 5)
        for i in range(30)
    ]
    story = staged(
        rows,
        policy,
        cluster,
        MIX,
        capacity=[
            (20.0, [(1, "down")]),
            (60.0, [(0, "draining")]),
            (200.0, [(0, "up"), (1, "up")]),
        ],
    )
    assert all(how == "completed" for how in story.how)
    assert any(isinstance(f, Started) and f.placement.interleave for f in story.facts)


class Impatient(SimWorld):
    """A world that gives up on jobs that take each other's GPUs for ever."""

    def advance(self, until: float) -> bool:
        assert self.instants < 500, "nobody gets on"
        return super().advance(until)


def test_a_job_trains_before_it_is_stopped_where_a_tick_is_shorter_than_a_switch() -> None:
    # By attained service the two would swap at every tick of 7 s, each within its restart of 30.
    rows = [Row(1, 60), Row(1, 60)]
    scene = scene_of(trace_of(*rows), "1x1", switching="restart:30")
    facts = Facts()
    policy = policy_of("muri-l:tick-s=7")
    run_loop(Impatient(scene, policy, facts), policy)
    done = [f.done_s for f in facts.all if isinstance(f, Stopped)]
    assert done and all(d > 0 for d in done)
