"""What policies advise on a snapshot of Slurm."""

import pytest

from dovetail.core.errors import InputError
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy, registered
from dovetail.shadow.advice import Advice, advise
from dovetail.shadow.snapshot import Snapshot, snapshot_of
from tests.shadow.scene_by_hand import job, node, running, scene
from tests.shadow.slurm_scene import sample


def ask(snapshot: Snapshot, policy: str, forecast: str = "limit") -> Advice:
    return advise(
        snapshot, parse_policy(policy), forecast=forecast, placing=Placing.parse("strict")
    )


def recorded() -> Snapshot:
    return snapshot_of(sample("squeue"), sample("sinfo"))


def test_a_policy_starts_what_fits_and_says_where_it_stands() -> None:
    advice = ask(scene([node("n1"), node("n2")], running(1, n1=4), job(2, 4), job(3, 2)), "fifo")
    assert advice.sentences() == ["start 2 on n2:4: 1st in its order and in Slurm's"]
    assert (advice.free_gpus, advice.running, advice.waiting) == (4, 1, 2)
    assert advice.waits == {"3": "Resources"}


def test_an_order_that_differs_is_said() -> None:
    short = job(3, 4, limit_s=60.0, priority=90.0)
    advice = ask(scene([node("n1")], running(1, n1=4), job(2, 4), short), "sjf")
    assert advice.sentences() == ["order 3, 2 instead of 2, 3"]


def test_a_preempted_job_gives_its_gpus_to_named_jobs() -> None:
    short = job(2, 4, limit_s=60.0)
    advice = ask(scene([node("n1")], running(1, n1=4), short), "srtf")
    assert advice.sentences() == [
        "preempt 1 on n1:4: its GPUs go to 2",
        "start 2 on n1:4: 1st in its order and in Slurm's",
    ]


def test_an_elastic_job_is_resized() -> None:
    advice = ask(recorded(), "afs-p")
    assert advice.sentences()[0] == "resize 1 n3:4 -> n3:2: it can train on 1 to 4 GPUs"


def test_agreement_is_said_too() -> None:
    advice = ask(scene([node("n1")], running(1, n1=4), job(2, 4)), "fifo")
    assert advice.sentences() == ["do what Slurm does: nothing now, and the same order"]


def test_a_job_stays_in_its_partition() -> None:
    nodes = [node("n1", partitions=("a",)), node("n2", partitions=("b",))]
    advice = ask(scene(nodes, job(1, 4, partition="b"), job(2, 4, partition="b")), "fifo")
    assert advice.sentences() == ["start 1 on n2:4: 1st in its order and in Slurm's"]


def test_a_job_of_several_partitions_starts_in_the_one_with_room() -> None:
    nodes = [node("n1", partitions=("a",)), node("n2", partitions=("b",))]
    nodes.append(node("n3", partitions=("c",)))
    jobs = [running(1, n1=4), running(3, n3=2), running(4, n2=2)]
    for policy in ("fifo:bypass=skip", "slurm"):
        advice = ask(scene(nodes, jobs[0], job(2, 4, partition="a,b")), policy)
        assert [(a.job, a.after) for a in advice.actions] == [("2", "n2:4")]
        # Two GPUs are free in `b` and two in `c`: a gang does not span partitions.
        advice = ask(scene(nodes, *jobs, job(2, 4, partition="b,c")), policy)
        assert not advice.actions


def test_a_job_gets_gpus_of_the_type_it_asks_for() -> None:
    nodes = [node("n1", gpu_type="a100"), node("n2", gpu_type="v100")]
    wanted = [job(1, 4, gpu_type="v100"), job(2, 4, gpu_type="v100"), job(3, 4)]
    advice = ask(scene(nodes, *wanted), "fifo:bypass=skip")
    assert [(a.job, a.after) for a in advice.actions] == [("1", "n2:4"), ("3", "n1:4")]


def test_nothing_outside_overlapping_partitions_is_advised() -> None:
    nodes = [node("n1", partitions=("a",)), node("n2", partitions=("a", "b"))]
    nodes.append(node("n3", partitions=("b",)))
    jobs = [job(1, 4, partition="a"), job(2, 4, partition="a"), job(3, 4, partition="b")]
    advice = ask(scene(nodes, *jobs), "fifo:bypass=skip")
    reach = {"1": {"n1:4", "n2:4"}, "2": {"n1:4", "n2:4"}, "3": {"n2:4", "n3:4"}}
    assert advice.actions
    assert all(action.after in reach[action.job] for action in advice.actions)
    assert any("partitions overlap" in note for note in advice.notes)


def test_a_draining_node_gets_nothing() -> None:
    nodes = [node("n1", state="draining"), node("n2", state="down")]
    advice = ask(scene(nodes, job(1, 4)), "fifo")
    assert advice.actions == ()


def test_jobs_may_end_on_a_node_that_is_going_down() -> None:
    advice = ask(scene([node("n1", state="down")], running(1, n1=4), job(2, 4)), "srtf")
    assert advice.actions == ()


def test_gpus_of_jobs_that_are_hidden_from_us_are_taken() -> None:
    advice = ask(scene([node("n1", used=3)], running(1, n1=1), job(2, 2)), "fifo")
    assert advice.free_gpus == 1 and advice.running == 1
    assert advice.actions == ()
    assert "GPUs held by jobs that squeue does not show you: 2" in advice.notes


def test_a_job_without_a_node_is_left_out_aloud() -> None:
    advice = ask(scene([node("n1")], job(1, 1, partition="gone"), job(2, 1)), "fifo")
    assert [action.job for action in advice.actions] == ["2"]
    assert "left out: 1 job for whose GPUs the partition has no node" in advice.notes


def test_lengths_are_limits_or_unknown_and_never_known() -> None:
    snapshot = scene([node("n1")], job(1, 1))
    with pytest.raises(InputError, match="cannot tell 'known'"):
        ask(snapshot, "fifo", forecast="known")
    with pytest.raises(InputError, match="needs to know: length"):
        ask(snapshot, "srtf", forecast="unknown")
    assert ask(snapshot, "tiresias", forecast="unknown").actions


@pytest.mark.parametrize("name", sorted(registered()))
def test_every_policy_can_be_asked_about_the_recorded_cluster(name: str) -> None:
    advice = ask(recorded(), name)
    assert sorted(advice.order) == sorted(advice.slurm_order) == ["5_2", "8", "9"]
    assert advice.sentences()
