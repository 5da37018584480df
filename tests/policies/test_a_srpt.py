"""A-SRPT rule by rule: the virtual order, the strict line, where jobs go, who waits for better."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Facts, Row, Story, play, play_scene, policy_of, scene_of, trace_of
from dovetail.algorithms.single_machine import srpt_completions
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.job import JobTable, PipelineStage
from dovetail.core.messages import Explained, Started
from dovetail.core.placement import Placement, Spans
from dovetail.core.tenants import QueueSpec
from dovetail.core.view import Changes, show
from dovetail.forecast.forecasts import FixedForecast, Known
from dovetail.mechanisms.pipelines.virtual_machine import VirtualLine
from dovetail.physics.linear import LinearSpeed, LinearStructure, linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import shipped
from dovetail.sim.world import SimWorld

STATES = ("down", "draining", "up")


class ChattySpeed(LinearSpeed):
    """Jobs of two or more GPUs run at a speed by the nodes they lie on."""

    def __init__(self, jobs: JobTable, by_nodes: tuple[float, ...] = ()) -> None:
        super().__init__(LinearStructure(jobs))
        self.jobs = jobs
        self.by_nodes = by_nodes or (1.0, 0.5, 0.4, 0.3)

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        """Returns the speed on that many nodes; the last holds for all more."""
        if placement.gpus == 1:
            return 1.0
        return self.by_nodes[min(placement.nodes, len(self.by_nodes)) - 1]

    def spread(self, job: int) -> float:
        """Returns the speed with every worker on a node of its own."""
        return self.by_nodes[-1] if self.jobs.gpus[job] > 1 else 1.0


def chatty(jobs: JobTable, by_nodes: tuple[float, ...] = ()) -> Physics:
    return replace(linear_physics(jobs), speed=ChattySpeed(jobs, by_nodes))


class Predicted(FixedForecast):
    """Says of each job what it is told to."""

    knows = frozenset({"length"})

    def __init__(self, *length_s: float) -> None:
        self._length_s = length_s

    def length_s(self, job: int, now: float) -> float:
        return self._length_s[job]


def spans_of(story: Story, job: int) -> Spans:
    (spans,) = [f.placement.spans for f in story.facts if isinstance(f, Started) and f.job == job]
    return spans


def start_of(story: Story, job: int) -> float:
    return story.starts(job)[0][0]


def test_worked_example_13() -> None:
    # c is predicted 20 of its 50 iterations of 0.2 s.
    rows = [Row(2, 6.0), Row(8, 1.0, submit_s=1), Row(4, 10.0, submit_s=1)]
    scene = replace(scene_of(trace_of(*rows), "1x8"), forecast=Predicted(6.0, 1.0, 4.0))
    story = play_scene(scene, "a-srpt")
    assert [start_of(story, job) for job in range(3)] == [1.5, 7.5, 8.5]
    assert story.finishes == [7.5, 8.5, 18.5]
    assert sum(f - r.submit_s for f, r in zip(story.finishes, rows, strict=True)) == 32.5
    reasons = [f for f in story.of(Explained) if f.t < 3]  # type: ignore[union-attr]
    assert [[r.code for r in f.reasons] for f in reasons] == [  # type: ignore[union-attr]
        ["BeginTime"],
        ["Resources", "Priority"],
    ]


def test_nobody_starts_before_its_virtual_completion_even_when_all_is_idle() -> None:
    story = play([Row(2, 8.0)], "a-srpt", "2x4")
    assert start_of(story, 0) == 2.0


def test_a_job_predicted_to_take_no_time_starts_on_arrival() -> None:
    rows = [Row(2, 8.0), Row(1, 3.0, submit_s=1)]
    scene = replace(scene_of(trace_of(*rows), "1x2"), forecast=Predicted(8.0, 0.0))
    assert start_of(play_scene(scene, "a-srpt"), 1) == 1.0


def test_the_head_stops_all_behind_it() -> None:
    # Job 0 holds one of two GPUs; job 1 wants both; job 2 would fit beside job 0.
    rows = [Row(1, 10.0), Row(2, 2.0, submit_s=5), Row(1, 8.0, submit_s=5)]
    story = play(rows, "a-srpt", "1x2")
    assert story.finishes == [15, 17, 25]


def test_a_light_job_goes_to_the_fullest_servers_all_of_one_before_the_next() -> None:
    # Sizes put them in order 0, 1, 2. 0 and 1 leave 1, 2 and 4 free GPUs.
    rows = [Row(3, 60.0, submit_s=0), Row(2, 91.0, submit_s=0), Row(4, 100.0, submit_s=0)]
    story = play(rows, "a-srpt", "3x4")
    assert spans_of(story, 0) == ((0, 3),)
    assert spans_of(story, 1) == ((0, 1), (1, 1))
    assert spans_of(story, 2) == ((1, 3), (2, 1))


@pytest.mark.parametrize("by_nodes", [(), (1.0, 1 / 1.5)])
def test_a_heavy_job_goes_to_the_emptiest_servers(by_nodes: tuple[float, ...]) -> None:
    # An exact tie with the ratio counts as heavy.
    rows = [Row(1, 390.0), Row(4, 100.0), Row(2, 210.0)]
    trace = trace_of(*rows)
    physics = chatty(trace.jobs, by_nodes=by_nodes)
    story = play_scene(scene_of(trace, "3x4", truth=physics), "a-srpt")
    assert spans_of(story, 0) == ((0, 1),)
    assert spans_of(story, 1) == ((1, 4),)
    assert spans_of(story, 2) == ((2, 2),)


def pair_on_two_nodes(policy: str, *by_nodes: float, ends_s: float = 100.0) -> Story:
    """Plays a heavy pair that finds one GPU on each of two nodes, and a small job behind it."""
    rows = [
        Row(1, 10.0),  # these three are predicted to take no time and start at 0: node 0
        Row(1, 300.0),  # node 0
        Row(1, ends_s),  # node 1
        Row(2, 20.0, submit_s=1),  # size 40 of 4 GPUs: done at 11; node 0 and 1 have one free each
        Row(1, 50.0, submit_s=2),  # size 50: done at 23.5
    ]
    trace = trace_of(*rows)
    physics = chatty(trace.jobs, by_nodes=by_nodes)
    scene = replace(
        scene_of(trace, "2x2", truth=physics), forecast=Predicted(0.0, 0.0, 0.0, 20.0, 50.0)
    )
    return play_scene(scene, policy)


def test_a_heavy_job_waits_its_window_and_then_takes_what_there_is() -> None:
    # tau 1: (2/4) * 20 s from 11 s on. Behind it job 4 waits though a GPU is free for it.
    story = pair_on_two_nodes("a-srpt")
    assert (start_of(story, 3), spans_of(story, 3)) == (21.0, ((0, 1), (1, 1)))
    codes = [[r.code for r in f.reasons] for f in story.of(Explained) if f.t == 11]  # type: ignore[union-attr]
    assert codes == [["BetterPlacement", "Priority"]]


def test_tau_scales_the_window_and_zero_is_none() -> None:
    assert start_of(pair_on_two_nodes("a-srpt:tau=2"), 3) == 31.0
    assert start_of(pair_on_two_nodes("a-srpt:tau=0"), 3) == 11.0


def test_a_better_place_ends_the_wait() -> None:
    # Job 2 leaves node 1 empty at 17 s.
    story = pair_on_two_nodes("a-srpt", ends_s=17.0)
    assert (start_of(story, 3), spans_of(story, 3)) == (17.0, ((1, 2),))


def test_a_place_as_bad_as_before_does_not_end_the_wait() -> None:
    # At 17 s more is free, and a node alone would serve no better: kappa is not undercut.
    story = pair_on_two_nodes("a-srpt", 0.5, 0.5, 0.3, ends_s=17.0)
    assert start_of(story, 3) == 21.0


def test_a_place_good_enough_is_taken_at_once() -> None:
    # 1/0.7 < 1.5, though four nodes would be 1/0.3 and the job is communication-heavy.
    assert start_of(pair_on_two_nodes("a-srpt", 1.0, 0.7, 0.3), 3) == 11.0


def test_a_job_that_communicates_little_does_not_wait() -> None:
    assert start_of(pair_on_two_nodes("a-srpt", 1.0, 0.7), 3) == 11.0
    assert start_of(pair_on_two_nodes("a-srpt:comm-heavy=3"), 3) == 11.0


def test_an_exact_tie_with_the_ratio_counts_as_heavy_and_as_good_enough() -> None:
    # Worst 1.5 times: heavy, so the emptiest servers; as placed 1.5 times: starts.
    story = pair_on_two_nodes("a-srpt", 1.0, 1 / 1.5)
    assert (start_of(story, 3), spans_of(story, 3)) == (11.0, ((0, 1), (1, 1)))


def test_waiting_for_a_better_place_stops_all_behind_unless_told_otherwise() -> None:
    # Job 4 completes virtually at 23.5 s, within a window that lasts to 51 s.
    assert start_of(pair_on_two_nodes("a-srpt:tau=4"), 4) >= 51.0
    story = pair_on_two_nodes("a-srpt:tau=4,nonblocking-delay=true")
    assert start_of(story, 4) == 23.5
    # The pair's time is over at 51 s; then it takes the next two GPUs, at the end of job 4.
    assert start_of(story, 3) == 73.5


def test_nobody_overtakes_a_job_whose_time_to_wait_is_over() -> None:
    rows = [
        Row(1, 10.0),
        Row(1, 300.0),
        Row(1, 100.0),
        Row(2, 20.0, submit_s=1),  # waits for a better place from 11 to 51 s
        Row(1, 50.0, submit_s=2),  # overtakes it at 23.5 s
        Row(1, 9.0, submit_s=3),  # predicted 146 s: leaves the virtual machine at 60 s
    ]
    trace = trace_of(*rows)
    scene = scene_of(trace, "2x2", truth=chatty(trace.jobs))
    told = Predicted(0.0, 0.0, 0.0, 20.0, 50.0, 146.0)
    story = play_scene(replace(scene, forecast=told), "a-srpt:tau=4,nonblocking-delay=true")
    # One GPU is free from 51 s on, two at 73.5 s; the next one when job 2 ends.
    assert [start_of(story, job) for job in (4, 3, 5)] == [23.5, 73.5, 100.0]


def test_who_lost_its_node_goes_first() -> None:
    rows = [Row(1, 20.0), Row(1, 40.0), Row(1, 60.0)]
    # 1 of 2 GPUs each: done at 10, 30, 60. Node 0 is lost at 15 s, comes back at 50 s.
    capacity = ((15.0, ((0, "down"),)), (50.0, ((0, "up"),)))
    story = play(rows, "a-srpt", "2x1", capacity=capacity)
    # Job 0 takes node 1 on at once, with 15 s left: 15 to 30 s.
    assert story.starts(0) == [(10.0, "start"), (15.0, "resume")]
    assert story.finishes[0] == 30.0
    # One GPU from 15 s on: job 1 had 35 left (5 done since 10 s at 2 a second: 30), one a second.
    assert start_of(story, 1) == 45.0
    # From 45 to 50 s five units of sixty, the rest at two a second.
    assert start_of(story, 2) == 77.5


def test_a_job_cancelled_while_it_waits_leaves_the_virtual_machine() -> None:
    rows = [Row(1, 4.0, end="cancelled"), Row(1, 6.0)]
    story = play(rows, "a-srpt:tau=0", "1x1", cancelled_by_clock=True)
    # Job 0 is on the virtual machine from 0 to 4 s, which is when its user gives up.
    assert story.starts(0) == []
    assert start_of(story, 1) == 10.0


def test_virtual_time_does_not_move_when_events_are_handled_as_one() -> None:
    rows = [Row(1, 7.0, submit_s=t / 2) for t in range(12)]
    orders = []
    for coalesce_s in (0.0, 3.0):
        story = play(rows, "a-srpt", "1x4", coalesce_s=coalesce_s)
        started = [(f.t, f.job) for f in story.of(Started)]  # type: ignore[union-attr]
        orders.append([job for _, job in sorted(started)])
    assert orders[0] == orders[1]


def test_arrivals_count_from_their_submission_however_late_they_are_looked_at() -> None:
    # Both are looked at at 2.5 s. Job 0 had the machine until then and has 1.5 of 4 s left.
    story = play([Row(1, 4.0), Row(1, 2.0, submit_s=2.5)], "a-srpt", "1x1", coalesce_s=3.0)
    assert start_of(story, 0) == 4.0
    assert story.ended() == [0, 1]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 4), st.integers(1, 20)),
        min_size=1,
        max_size=14,
    )
)
def test_jobs_start_in_virtual_order_and_never_before(jobs: list[tuple[int, int, int]]) -> None:
    rows = [Row(g, float(s), submit_s=float(t)) for t, g, s in sorted(jobs)]
    policy = policy_of("a-srpt")
    facts = Facts()
    world = SimWorld(scene_of(trace_of(*rows), "2x2"), policy, facts)
    memory, wake_at = policy.initial, float("inf")
    while world.advance(wake_at):
        decision = policy.decide(world.observe(), memory)
        if decision.draft is not None:
            world.apply(decision.draft)
        world.note(decision)
        # What it remembers is a value: it can be written down, and reads back as equal.
        memory = pickle.loads(pickle.dumps(decision.memory))
        assert memory == decision.memory
        wake_at = decision.wake_at
    world.advance(0.0)
    done = srpt_completions([r.submit_s for r in rows], [r.gpus * r.duration_s / 4 for r in rows])
    started = [f.job for f in facts.all if isinstance(f, Started)]
    start_s = {f.job: f.t for f in facts.all if isinstance(f, Started)}
    assert len(started) == len(rows)
    for job in started:
        assert start_s[job] >= done[job] - 1e-6
    ranked = sorted((round(float(done[job]), 6), start_s[job]) for job in started)
    starts = [start for _, start in ranked]
    assert starts == sorted(starts)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 5), st.integers(1, 20)),
        min_size=1,
        max_size=14,
    ),
    st.sampled_from(["a-srpt", "a-srpt:tau=3,nonblocking-delay=true", "a-srpt:tau=0"]),
    st.lists(
        st.tuples(
            st.integers(1, 90), st.integers(0, 2), st.sampled_from(["down", "draining", "up"])
        ),
        max_size=6,
    ),
    st.sampled_from([0.0, 4.0]),
)
def test_every_job_ends_once_whatever_the_nodes_and_placements_do(
    jobs: list[tuple[int, int, int]],
    policy: str,
    nodes: list[tuple[int, int, str]],
    coalesce_s: float,
) -> None:
    trace = trace_of(*(Row(g, float(s), submit_s=float(t)) for t, g, s in sorted(jobs)))
    churn = [(float(t), ((node, state),)) for t, node, state in sorted(nodes)]
    back = (100.0, tuple((node, "up") for node in range(3)))
    scene = scene_of(
        trace,
        "3x2",
        truth=chatty(trace.jobs),
        capacity=(*churn, back),
        coalesce_s=coalesce_s,
        switching="restart:2",
    )
    assert sorted(play_scene(scene, policy).ended()) == list(range(len(jobs)))


def test_a_policy_that_begins_amid_a_run_adopts_who_waits() -> None:
    rows = [Row(1, 4.0), Row(1, 2.0)]
    policy = policy_of("a-srpt")
    world = SimWorld(scene_of(trace_of(*rows), "1x2"), policy, Facts())
    world.advance(float("inf"))
    show(world.observe(), changes=Changes())
    decision = policy.decide(world.observe(), policy.initial)
    assert isinstance(decision.memory, VirtualLine)
    assert decision.memory.machine.job == 1
    assert decision.wake_at == 1.0


def test_types_of_gpu_and_quotas_are_obeyed() -> None:
    cluster = Cluster(
        (NodeGroup("a", 1, 4, "a"), NodeGroup("b", 1, 4, "b")), queues=(QueueSpec("q", 2),)
    )
    rows = [
        Row(2, 10.0, gpu_type="b"),
        Row(2, 12.0, queue="q"),
        Row(2, 14.0, queue="q"),
        Row(1, 40.0),
    ]
    story = play(rows, "a-srpt", cluster)
    assert spans_of(story, 0) == ((1, 2),)
    # The first of the queue holds its quota until it ends; the second stops all behind it.
    assert start_of(story, 2) == story.finishes[1]
    assert start_of(story, 3) >= start_of(story, 2)


def test_strict_placement_keeps_gangs_together() -> None:
    rows = [Row(3, 60.0), Row(2, 91.0), Row(4, 100.0)]
    story = play(rows, "a-srpt", "3x4", placing="strict,first-fit,repack")
    assert [spans_of(story, job) for job in range(3)] == [((0, 3),), ((1, 2),), ((2, 4),)]


@pytest.mark.parametrize(
    "text",
    [
        "a-srpt:tau=-1",
        "a-srpt:tau=inf",
        "a-srpt:comm-heavy=0.5",
        "a-srpt:tau=x",
        "a-srpt:replicas=x",
    ],
)
def test_parameters_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(Exception, match=r"tau|comm-heavy|replicas"):
        policy_of(text)


def test_refined_replicas_end_sooner_where_heavy_edge_cuts_a_stage() -> None:
    # Three replicas that reduce 90 MB, two that reduce 60 MB, one; six GPUs on two servers.
    graph = (
        PipelineStage(3, 0.01, 0.02, 0.0, 2e6, 90e6),
        PipelineStage(2, 0.01, 0.02, 3e6, 3e6, 60e6),
        PipelineStage(1, 0.01, 0.02, 6e6, 0.0, 0.0),
    )
    trace = trace_of(Row(6, 100.0))
    code = np.zeros(1, np.int32)
    trace = replace(trace, jobs=replace(trace.jobs, graphs=(graph,), graph_code=code))
    truth = placed_physics(trace.jobs, Cluster.parse("1x4+1x2"), shipped())
    scene = scene_of(trace, "1x4+1x2", truth=truth)
    plain, refined = (play_scene(scene, f"a-srpt{how}") for how in ("", ":replicas=refined"))
    assert spans_of(plain, 0) == ((0, 4), (1, 2))
    assert spans_of(refined, 0) == ((0, 3), (1, 2), (0, 1))
    assert refined.finishes[0] < plain.finishes[0]


def test_the_true_length_is_not_needed() -> None:
    trace = trace_of(Row(1, 10.0), Row(1, 2.0))
    scene = replace(scene_of(trace, "1x1"), forecast=Known(trace.duration_s[::-1]))
    # Believed the wrong way round, the long one goes first.
    assert play_scene(scene, "a-srpt").ended() == [0, 1]
