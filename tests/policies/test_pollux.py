"""Pollux's rounds: when they come, whom they resize, which batches they choose."""

from dataclasses import replace

import pytest

from builders import Row, Stage, Story, play, play_scene, policy_of, scene_of, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.messages import Ended, Started, Stopped
from dovetail.core.policy import parse_policy
from dovetail.core.view import show
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import lookup, shipped
from dovetail.policies.pollux import Past, Pollux

QUICK = "pollux:population=20,generations=15,restart=0"


def elastic(duration_s: float, **more: object) -> Row:
    return replace(
        Row(1, duration_s, min_gpus=1, max_gpus=8, elastic=True),
        **more,  # type: ignore[arg-type]
    )


def learner(model: str, gpus: int, batch: int, duration_s: float = 2000.0) -> Row:
    return elastic(duration_s, model=f"pollux/{model}", gpus=gpus, batch_size=batch)


def played(rows: list[Row], policy: str, cluster: str, **options: object) -> Story:
    """Plays rows by the models of the zoo."""
    trace = trace_of(*rows)
    truth = placed_physics(trace.jobs, Cluster.parse(cluster), shipped())
    return play_scene(scene_of(trace, cluster, truth=truth, **options), policy)  # type: ignore[arg-type]


def placed(story: Story) -> list[Started]:
    return [f for f in story.of(Started) if isinstance(f, Started)]


def test_jobs_start_at_the_next_multiple_of_the_interval() -> None:
    rows = [elastic(30.0), elastic(30.0, submit_s=1.0), elastic(30.0, submit_s=119.0)]
    story = play(rows, QUICK, "1x4")
    assert [story.starts(j)[0][0] for j in range(3)] == [0.0, 60.0, 120.0]
    story = play(rows, QUICK + ",interval=7", "1x4")
    assert [story.starts(j)[0][0] for j in range(3)] == [0.0, 7.0, 119.0]


def test_an_interval_that_floats_cannot_hold_still_ticks() -> None:
    step_s = 4 / 3
    assert int(7 * step_s / step_s) == 6
    story = play([Row(1, 98), Row(1, 33, submit_s=64.7)], QUICK + f",interval={step_s}", "1x1")
    assert sorted(story.ended()) == [0, 1]


def test_woken_late_a_round_is_held_and_woken_again_it_is_not() -> None:
    stage = Stage([elastic(500), elastic(500)], QUICK, "1x4").at(60.3)
    show(stage.view, changes=stage.view.changes._replace(woke=True))
    first = stage.policy.decide(stage.view, None)
    assert first.draft is not None
    assert first.wake_at == 120.0
    stage.view.plan.discard()
    stage.at(75.0)
    again = stage.policy.decide(stage.view, first.memory)
    assert (again.draft, again.memory, again.wake_at) == (None, first.memory, 120.0)


def test_gpus_of_a_job_that_ended_wait_for_the_next_round() -> None:
    story = play([Row(4, 70.0), Row(4, 10.0, submit_s=5.0)], QUICK, "1x4")
    assert [story.starts(j)[0][0] for j in (0, 1)] == [0.0, 120.0]


def test_a_job_gets_at_most_twice_the_gpus_it_ever_had() -> None:
    story = play([elastic(1500.0)], QUICK, "1x8")
    assert [f.placement.gpus for f in placed(story)] == [1, 2, 4, 8]
    assert [f.t for f in placed(story)] == [0.0, 60.0, 120.0, 180.0]
    story = play([elastic(1500.0)], QUICK + ",growth=8", "1x8")
    assert [f.placement.gpus for f in placed(story)] == [1, 8]


def test_equal_jobs_share_equally() -> None:
    story = play([elastic(1e4), elastic(1e4)], QUICK + ",growth=8", "1x8")
    last = {f.job: f.placement.gpus for f in placed(story) if f.t <= 300}
    assert last == {0: 4, 1: 4}


def test_with_decay_a_job_that_used_much_yields() -> None:
    """After 7,200 s on eight GPUs, 16 GPU-hours, the first weighs half of the second."""
    rows = [elastic(1e5), elastic(1e5, submit_s=7200.0)]
    shares = {}
    for decay in ("0", "0.5", "2"):
        story = play(rows, QUICK + f",growth=8,decay={decay}", "1x8")
        last = {f.job: f.placement.gpus for f in placed(story) if f.t <= 7500}
        shares[decay] = last[1]
    assert shares == {"0": 4, "0.5": 5, "2": 6}


def test_a_rigid_job_has_what_it_asked_for_or_waits() -> None:
    rows = [Row(3, 100.0), Row(3, 100.0), elastic(500.0)]
    story = play(rows, QUICK + ",growth=8", "1x4")
    assert {f.placement.gpus for f in placed(story) if f.job < 2} == {3}
    assert sorted(story.ended()) == [0, 1, 2]


def test_a_large_rigid_job_finds_its_nodes() -> None:
    story = play([Row(11, 100.0)], QUICK, "4x4")
    assert [f.placement.gpus for f in placed(story)] == [11]


def test_batches_grow_with_gpus_and_progress_and_stay_for_rigid_jobs() -> None:
    rows = [learner("cifar10", 1, 128, 30000.0), replace(learner("cifar10", 4, 512), elastic=False)]
    rows[1] = replace(rows[1], min_gpus=4, max_gpus=4, submit_s=100.0)
    story = played(rows, QUICK, "2x4")
    batches = [f.placement.batch_size for f in placed(story) if f.job == 0]
    known = lookup("pollux/cifar10").efficiency
    assert known is not None
    assert all(known.value.initial_batch <= b <= known.value.max_batch for b in batches)
    assert batches[0] < batches[-1]
    assert {f.placement.batch_size for f in placed(story) if f.job == 1} == {0}
    hows = {f.how for f in placed(story) if f.job == 0}
    assert "adjust" in hows, "a batch changes without a restart"


def test_a_chosen_batch_ends_the_job_sooner_than_its_own() -> None:
    """One job of 2,048 samples on 8 GPUs: only its batch can make it faster."""
    row = replace(learner("cifar10", 8, 128, 4000.0), min_gpus=8)
    story = played([row], QUICK, "2x4")
    assert story.finishes[0] < 0.7 * 4000


def test_two_spread_jobs_never_meet_on_a_node() -> None:
    rows = [learner("imagenet", 6, 3200, 900.0 + j) for j in range(3)]
    story = played(rows, QUICK + ",growth=64", "4x4")
    nodes_of: dict[int, set[int]] = {}
    spread = 0
    for batch in story.batches:
        for fact in batch:
            if isinstance(fact, Started):
                nodes_of[fact.job] = set(fact.placement.by_node())
            elif isinstance(fact, Stopped | Ended):
                nodes_of.pop(fact.job, None)
        wide = [n for nodes in nodes_of.values() if len(nodes) > 1 for n in nodes]
        assert len(wide) == len(set(wide))
        spread += bool(wide)
    assert spread, "some job is spread at some time"


def test_restarts_cost_more_the_more_there_were() -> None:
    """With a restart that takes hours nobody is ever moved once placed."""
    rows = [elastic(3000.0, submit_s=200.0 * j) for j in range(5)]
    story = play(rows, QUICK.replace("restart=0", "restart=36000"), "2x4")
    moves = [f for f in placed(story) if f.how in ("resize", "move", "resume")]
    free = play(rows, QUICK, "2x4")
    assert len(moves) < len([f for f in placed(free) if f.how in ("resize", "move", "resume")])


def test_a_seed_decides_and_nothing_else_does() -> None:
    rows = [learner("deepspeech2", 4, 160, 500.0 + 90 * j) for j in range(6)]
    first, again = (played(rows, QUICK + ",seed=3", "4x4") for _ in range(2))
    assert first.of(Started) == again.of(Started)
    other = played(rows, QUICK + ",seed=4", "4x4")
    assert first.of(Started) != other.of(Started)


def test_a_closed_node_takes_no_new_work() -> None:
    trace = trace_of(elastic(900.0), elastic(900.0))
    story = play_scene(
        scene_of(
            trace,
            "2x4",
            truth=linear_physics(trace.jobs),
            capacity=[(30.0, [(1, "draining")]), (600.0, [(1, "up")])],
        ),
        QUICK + ",growth=8",
    )
    for fact in placed(story):
        if 30 < fact.t < 600:
            assert fact.placement.by_node().get(1, 0) <= 1


def test_a_job_stays_on_the_type_of_gpu_it_asked_for() -> None:
    rows = [elastic(900.0, gpu_type="t4"), elastic(900.0, gpu_type="v100"), elastic(900.0)]
    story = play(rows, QUICK + ",growth=8", "2x2:t4+1x4:v100")
    nodes = {job: set[int]() for job in range(3)}
    for fact in placed(story):
        nodes[fact.job] |= set(fact.placement.by_node())
    assert nodes[0] <= {0, 1}
    assert nodes[1] == {2}


@pytest.mark.parametrize(
    "wrong",
    [
        "interval=0",
        "interval=1e-9",
        "interval=inf",
        "restart=inf",
        "restart=-1",
        "population=1",
        "generations=0",
        "growth=0",
        "decay=-1",
        "seed=-1",
        "threshold=0",
    ],
)
def test_parameters_that_cannot_be_are_refused(wrong: str) -> None:
    with pytest.raises(Exception, match="policy 'pollux'"):
        parse_policy(f"pollux:{wrong}")


def test_it_forgets_jobs_that_are_gone() -> None:
    rows = [elastic(50.0, submit_s=70.0 * j) for j in range(6)]
    policy = policy_of(QUICK)
    assert isinstance(policy, Pollux)
    story = play(rows, policy, "1x4")
    assert sorted(story.ended()) == list(range(6))
    assert policy.initial == Past()
