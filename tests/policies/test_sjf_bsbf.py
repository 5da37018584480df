"""Single decisions of the sharing policies: whom a waiting job joins, how, and why it waits."""

from dataclasses import replace

import pytest

from builders import Row, Stage, Story, play, play_scene, scene_of, trace_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.messages import Explained, Reason, Retimed, Started
from dovetail.core.placement import Placement
from dovetail.core.policy import parse_policy
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.physics.zoo.models import shipped


def shared(rows: list[Row], policy: str, cluster: str, ratio: float, **more: str) -> Story:
    """Plays jobs that all allow sharing, with one interference ratio."""
    trace = trace_of(*(replace(r, shareable=True) for r in rows))
    truth = linear_physics(trace.jobs, Injected(ratio))
    return play_scene(scene_of(trace, cluster, truth=truth, **more), policy)  # type: ignore[arg-type]


def where(story: Story, job: int) -> Placement:
    """Returns the first placement of a job."""
    return next(f.placement for f in story.facts if isinstance(f, Started) and f.job == job)


def begins(story: Story) -> list[float]:
    """Returns when each job first started."""
    return [story.starts(j)[0][0] for j in range(len(story.scene.trace.jobs))]


@pytest.mark.parametrize(
    ("ratio", "guest_s", "waits"),
    [
        (1.25, 80, False),
        (1.49, 80, False),
        (1.5, 80, False),  # below the ratio of lengths of 1
        (1.5, 101, True),  # an exact tie from there on
        (2.0, 49, False),
        (2.0, 51, True),
        (1.75, 66, False),
        (1.75, 67, True),
    ],
)
def test_a_newcomer_shares_up_to_the_analytic_ratio_of_lengths(
    ratio: float, guest_s: float, waits: bool
) -> None:
    rows = [Row(1, 101), Row(1, guest_s, submit_s=1)]
    ends = 101.0 if waits else 1.0
    assert begins(shared(rows, "sjf-bsbf", "1x1", ratio))[1] == pytest.approx(ends)
    assert begins(shared(rows, "sjf-ffs", "1x1", ratio))[1] == 1.0


def test_a_host_and_its_guest_run_at_the_shared_speed_until_one_ends() -> None:
    story = shared([Row(1, 20), Row(1, 30)], "sjf-bsbf", "1x1", 1.3)
    # Solo 20 and 30: the host ends at 26, the guest has made 20 by then and needs 10 more.
    assert story.finishes == pytest.approx([26, 36])
    retimed = [(f.t, f.job, f.rate) for f in story.facts if isinstance(f, Retimed)]
    assert retimed == [(pytest.approx(26.0), 1, 1.0)]


def test_free_gpus_are_taken_alone_when_there_are_enough() -> None:
    story = shared([Row(2, 50), Row(2, 50)], "sjf-bsbf", "1x4", 1.0)
    assert [where(story, j).gpu_ids for j in (0, 1)] == [((0, 1),), ((2, 3),)]


def test_best_sharing_takes_hosts_first_and_free_gpus_for_the_rest_first_fit_the_reverse() -> None:
    # Job 1 wants 3 of 4 GPUs; the host holds 0 and 1.
    rows = [Row(2, 100), Row(3, 10, submit_s=1)]
    assert where(shared(rows, "sjf-bsbf", "1x4", 1.1), 1).gpu_ids == ((0, 1, 2),)
    assert where(shared(rows, "sjf-ffs", "1x4", 1.1), 1).gpu_ids == ((0, 2, 3),)


def test_the_host_with_the_smallest_pair_time_comes_first_and_the_last_is_cut() -> None:
    # Hosts of two GPUs with 60, 90 and 300 s left on nodes 0, 1 and 2; the guest wants three.
    rows = [Row(2, 91), Row(2, 61), Row(2, 301), Row(3, 20, submit_s=1)]
    story = shared(rows, "sjf-bsbf", "3x2", 1.2)
    assert where(story, 3).by_node() == {0: 2, 1: 1}
    # By benefit the host with the most left is first: it would keep the guest waiting longest.
    story = shared(rows, "sjf-bsbf:order-hosts=benefit", "3x2", 1.2)
    assert where(story, 3).by_node() == {2: 2, 1: 1}


def test_a_host_on_several_nodes_gives_gpus_on_as_few_as_it_can() -> None:
    story = shared([Row(5, 100), Row(2, 5, submit_s=1)], "sjf-bsbf", "1x2+1x3", 1.1)
    assert where(story, 0).gpus == 5
    assert where(story, 1).by_node() == {1: 2}


def test_a_whole_host_slows_when_one_of_its_gpus_is_shared() -> None:
    story = shared([Row(4, 100), Row(1, 10, submit_s=1)], "sjf-bsbf", "1x4", 1.25)
    assert story.finishes == pytest.approx([102.5, 13.5])


def test_nobody_joins_where_two_are_already() -> None:
    rows = [Row(1, 100), Row(1, 20, submit_s=1), Row(1, 1, submit_s=2)]
    story = shared(rows, "sjf-ffs", "1x1", 1.2)
    assert begins(story) == [0.0, 1.0, 25.0]


def test_a_guest_on_free_gpus_may_be_a_host_there() -> None:
    # The guest takes GPU 0 with its host and GPU 1 for itself; the next one joins it on 1.
    rows = [Row(1, 100), Row(2, 60, submit_s=1), Row(1, 5, submit_s=2)]
    story = shared(rows, "sjf-bsbf", "1x2", 1.1)
    assert where(story, 1).gpu_ids == ((0, 1),)
    assert where(story, 2).gpu_ids == ((1,),)


def test_order_is_by_length_or_by_length_times_gpus() -> None:
    rows = [Row(4, 10), Row(4, 4, submit_s=1), Row(1, 6, submit_s=1)]
    refused = [replace(r, shareable=False) for r in rows]
    assert play(refused, "sjf-bsbf", "1x4").ended() == [0, 1, 2]
    assert play(refused, "sjf-bsbf:priority=service", "1x4").ended() == [0, 2, 1]


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs"])
@pytest.mark.parametrize("allows", [(True, False), (False, True)])
def test_both_owners_must_allow_sharing(policy: str, allows: tuple[bool, bool]) -> None:
    rows = [Row(1, 100, shareable=allows[0]), Row(1, 10, submit_s=1, shareable=allows[1])]
    assert begins(play(rows, policy)) == [0.0, 1.0]  # a free GPU
    assert begins(play(rows, policy, "1x1")) == [0.0, 100.0]


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs"])
def test_a_host_that_holds_a_mere_count_gets_its_gpus_named_and_does_not_move(policy: str) -> None:
    rows = [Row(2, 50, shareable=True), Row(1, 50, shareable=True), Row(3, 9, shareable=True)]
    stage = Stage(rows, policy, "1x4").run_jobs((0, ((0, 2),)), (1, ((0, 1),)))
    decision = stage.policy.decide(stage.view, None)
    assert decision.draft is not None
    changes = {c.job: c for c in decision.draft.changes()}
    assert sorted(changes) == [0, 1, 2]
    for job in (0, 1):
        before, after = changes[job].before, changes[job].after
        assert before is not None and after is not None
        assert after.gpu_ids and not before.moves_to(after)


def test_an_overdue_host_is_left_alone_by_best_benefit() -> None:
    rows = [Row(1, 5, shareable=True), Row(1, 1, shareable=True)]
    stage = Stage(rows, "sjf-bsbf", "1x1").run_jobs((0, ((0, 1),))).at(7.0)
    assert stage.policy.decide(stage.view, None).draft is None


def test_it_says_why_jobs_wait() -> None:
    rows = [Row(1, 100), Row(1, 90, submit_s=1), Row(2, 90, submit_s=2)]
    story = shared(rows, "sjf-bsbf", "1x2", 2.0)
    told = [f for f in story.facts if isinstance(f, Explained)]
    assert [f.t for f in told[:2]] == [0.0, 2.0]
    assert told[1].reasons == (Reason("SharingDoesNotPay", shape=1), Reason("Resources"))
    full = [replace(r, shareable=False) for r in rows]
    told = [f for f in play(full, "sjf-bsbf", "1x2").facts if isinstance(f, Explained)]
    assert told[1].reasons == (Reason("Resources"),)


def test_arrivals_alone_do_not_move_what_waits_but_a_start_may() -> None:
    # At 3 a job starts on the last free GPU and becomes a host; who waited for two joins it.
    rows = [Row(1, 100), Row(2, 95, submit_s=1), Row(1, 400, submit_s=3)]
    story = shared(rows, "sjf-bsbf", "1x2", 1.6)
    assert begins(story) == [0.0, 3.0, 3.0] or begins(story)[1] > 3.0
    assert begins(story)[2] == 3.0


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs"])
def test_gangs_that_may_not_be_spread_do_not_spread_over_hosts(policy: str) -> None:
    rows = [Row(1, 100), Row(1, 100), Row(2, 10, submit_s=1)]
    spread = shared(rows, policy, "2x2", 1.1, placing="none,most-free")
    assert where(spread, 2).nodes == 2
    full = [Row(2, 100), Row(2, 100), Row(1, 10, submit_s=1), Row(3, 10, submit_s=2)]
    strict = shared(full, policy, "2x2", 1.1, placing="strict,first-fit")
    assert where(strict, 3).nodes == 2


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs"])
def test_where_the_best_hosts_lie_apart_one_that_holds_the_whole_gang_will_do(policy: str) -> None:
    # Two nodes of four. Jobs 0 and 1 hold two GPUs of node 0 each, job 2 all of node 1. A gang of
    # four that may not be spread finds its best host on node 0, and job 1 shares with nobody.
    rows = [
        Row(2, 100, shareable=True),
        Row(2, 1000),
        Row(4, 500, submit_s=0.5, shareable=True),
        Row(4, 10, submit_s=1, shareable=True),
        Row(4, 60, submit_s=1, shareable=True),
    ]
    for jobs in (rows[:4], rows[:3] + rows[4:]):
        trace = trace_of(*jobs)
        truth = linear_physics(trace.jobs, Injected(2.0))
        story = play_scene(scene_of(trace, "2x4", truth=truth, placing="strict"), policy)
        assert begins(story)[3] == 1.0
        assert where(story, 3).by_node() == {1: 4}


def pairs_apart(*more: Row) -> Story:
    """Plays jobs beside hosts of one GPU, ratio 2: a host needs twice the length of its guest.

    Nodes have two GPUs, gangs may not be spread. Nodes 0 and 1 have a host each, of 100 and 101 s,
    and a job that shares with nobody; node 2 has two hosts, of 300 and 301 s.
    """
    lengths = (100, 900, 101, 900, 300, 301)
    rows = [
        Row(1, length, submit_s=i * 0.01, shareable=length != 900)
        for i, length in enumerate(lengths)
    ]
    trace = trace_of(*rows, *more)
    truth = linear_physics(trace.jobs, Injected(2.0))
    scene = scene_of(trace, "3x2", truth=truth, placing="strict,first-fit")
    return play_scene(scene, "sjf-bsbf")


def test_who_is_refused_a_seat_does_not_speak_for_longer_jobs_of_its_class() -> None:
    # The short gang's best hosts lie on nodes 0 and 1; the long one gains on node 2 only.
    pair = [Row(2, length, submit_s=1, shareable=True) for length in (9, 90)]
    story = pairs_apart(*pair)
    assert begins(story)[7] == 1.0
    assert where(story, 7).by_node() == {2: 2}
    assert begins(story)[6] > 100.0


def test_time_alone_may_bring_other_hosts_to_the_front() -> None:
    # At 97 s the hosts on nodes 0 and 1 have too little left for 9 s. The job that comes then
    # starts nowhere.
    story = pairs_apart(Row(2, 9, submit_s=1, shareable=True), Row(1, 5, submit_s=97))
    assert begins(story)[6] == 97.0
    assert where(story, 6).by_node() == {2: 2}


def test_who_starts_may_make_a_place_for_one_before_it() -> None:
    # Two nodes of two. Jobs 0 and 2 leave a GPU of each node free, so by count job 3 needs no
    # host. Once job 4 has that of node 0, job 3 joins job 2 on node 1.
    rows = [Row(1, 100), Row(1, 0.5, submit_s=0.05), Row(1, 100, submit_s=0.1, shareable=True)]
    rows += [Row(2, 10, submit_s=2, shareable=True), Row(1, 50, submit_s=2)]
    trace = trace_of(*rows)
    truth = linear_physics(trace.jobs, Injected(1.2))
    for policy in ("sjf-bsbf", "sjf-ffs"):
        scene = scene_of(trace, "2x2", truth=truth, placing="strict")
        assert begins(play_scene(scene, policy))[3:] == [2.0, 2.0]


def test_a_host_without_cpus_for_the_guest_makes_way_for_the_next() -> None:
    # Both nodes have eight CPUs: the host that would gain most leaves four, the guest wants six.
    trace = trace_of(
        Row(2, 500, shareable=True, cpus=4),
        Row(2, 600, shareable=True, cpus=1),
        Row(2, 10, submit_s=1, shareable=True, cpus=6),
    )
    cluster = Cluster((NodeGroup("all", 2, 2, cpus=8),))
    truth = linear_physics(trace.jobs, Injected(1.2))
    for policy in ("sjf-bsbf", "sjf-ffs"):
        story = play_scene(scene_of(trace, cluster, truth=truth), policy)
        assert begins(story)[2] == 1.0
        assert where(story, 2).by_node() == {1: 2}


def two_berts(policy: str, memory_bytes: float, host_batch: int, guest_batch: int) -> Story:
    """Plays two BERT jobs on one GPU: 2.56 GB each and 0.43 GB for each sample of a micro-batch."""
    trace = trace_of(
        Row(1, 60, model="bert", batch_size=host_batch, shareable=True),
        Row(1, 18, model="bert", batch_size=guest_batch, submit_s=1, shareable=True),
    )
    cluster = Cluster((NodeGroup("all", 1, 1, gpu_memory_bytes=memory_bytes),))
    truth = placed_physics(trace.jobs, cluster, shipped(), interference=Injected(1.25))
    return play_scene(scene_of(trace, cluster, truth=truth), policy)


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs"])
@pytest.mark.parametrize(
    ("memory_gb", "steps"),
    [
        (14.0, 1),  # 6.0 for the host at 8, 7.72 for the guest at 12
        (11.5, 2),  # 5.14 for micro-batches of 6
        (10.0, 4),  # 3.85 for 3
        (9.5, 8),  # 3.42 for 1.5, which some steps make 2
        (9.1, 0),  # not even one sample at a time
    ],
)
def test_the_newcomers_batch_is_cut_until_both_fit(
    policy: str, memory_gb: float, steps: int
) -> None:
    story = two_berts(policy, memory_gb * 1e9, 8, 12)
    placement = where(story, 1)
    assert placement.accumulation_steps == (steps or 1)
    assert (begins(story)[1] == 1.0) == (steps > 0)
    assert where(story, 0).accumulation_steps == 1


@pytest.mark.parametrize("host_batches", [(4, 8), (8, 4)])
def test_beside_several_hosts_the_batch_is_cut_for_the_fullest(
    host_batches: tuple[int, int],
) -> None:
    # 12.5 GB, 7.72 for the guest at 12 on each GPU: whole beside 4.28, in two halves beside 6.0.
    trace = trace_of(
        Row(1, 60, model="bert", batch_size=host_batches[0], shareable=True),
        Row(1, 90, model="bert", batch_size=host_batches[1], shareable=True),
        Row(2, 18, model="bert", batch_size=24, submit_s=1, shareable=True),
    )
    cluster = Cluster((NodeGroup("all", 1, 2, gpu_memory_bytes=12.5e9),))
    truth = placed_physics(trace.jobs, cluster, shipped(), interference=Injected(1.25))

    story = play_scene(scene_of(trace, cluster, truth=truth), "sjf-bsbf")

    guest = where(story, 2)
    assert begins(story) == [0.0, 0.0, 1.0]
    assert (guest.gpus, guest.accumulation_steps) == (2, 2)


def test_a_job_too_large_for_a_gpu_alone_runs_with_the_fewest_steps_that_fit() -> None:
    story = two_berts("sjf-bsbf", 5.2e9, 8, 12)
    assert [where(story, j).accumulation_steps for j in (0, 1)] == [2, 2]
    assert begins(story)[1] > 1.0


def test_parameters_are_checked() -> None:
    for text in ("sjf-bsbf:priority=gpus", "sjf-bsbf:order-hosts=jct", "sjf-ffs:priority=no"):
        with pytest.raises(InputError, match="not '"):
            parse_policy(text)
