"""What is read of a running Slurm, on answers recorded from Slurm 22.05.8 (`slurm_scene`)."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from dovetail.core.cluster import DOWN, DRAINING, UP
from dovetail.core.errors import InputError
from dovetail.shadow.past_jobs import past_jobs
from dovetail.shadow.snapshot import Snapshot, memory_bytes, snapshot_of
from tests.shadow.newer_json import newer_sinfo, newer_squeue
from tests.shadow.slurm_scene import sample


def recorded() -> Snapshot:
    return snapshot_of(sample("squeue"), sample("sinfo"))


def test_running_jobs_hold_the_gpus_that_slurm_gave_them() -> None:
    held = {job.job_id: job.held for job in recorded().jobs if job.held}
    assert held == {
        "1": (("n3", 4),),
        "2": (("n4", 3),),
        "3": (("n1", 4), ("n2", 4)),
        "4": (("n4", 1),),
        "5_0": (("n5", 2),),
        "5_1": (("n5", 2),),
    }


def test_a_waiting_array_is_its_tasks_and_its_limit_holds_some_back() -> None:
    jobs = {job.job_id: job for job in recorded().jobs}
    tasks = {name: jobs[name].held_back for name in ("5_2", "5_3", "5_4", "5_5")}
    # At most three run at a time, and two do.
    assert tasks == {"5_2": "", **dict.fromkeys(("5_3", "5_4", "5_5"), "JobArrayTaskLimit")}
    assert {jobs[name].slurm_id for name in tasks} == {"5"}


def test_what_slurm_holds_back_is_not_offered_to_a_policy() -> None:
    jobs = {job.job_id: job for job in recorded().jobs}
    reasons = {name: jobs[name].held_back for name in ("10", "11", "12")}
    assert reasons == {"10": "JobHeldUser", "11": "Dependency", "12": "BeginTime"}
    assert [name for name, job in jobs.items() if job.waits] == ["5_2", "8", "9"]


def test_only_requeueable_running_jobs_may_be_preempted() -> None:
    fixed = {job.job_id for job in recorded().jobs if not job.preemptible}
    # Job 2 is --no-requeue, job 4 is suspended: Slurm keeps the GPUs of both.
    assert fixed == {"2", "4"}


def test_a_comment_makes_a_job_elastic() -> None:
    jobs = {job.job_id: job for job in recorded().jobs}
    assert (jobs["1"].least_gpus, jobs["1"].most_gpus) == (1, 4)
    assert (jobs["3"].least_gpus, jobs["3"].most_gpus) == (8, 8)


def test_limits_and_requests_are_read() -> None:
    jobs = {job.job_id: job for job in recorded().jobs}
    assert (jobs["9"].limit_s, jobs["9"].gpus, jobs["9"].partition) == (120.0, 2, "a100")
    assert (jobs["9"].user, jobs["9"].account, jobs["9"].qos) == ("proxy", "arts", "normal")


def test_nodes_have_types_partitions_and_states() -> None:
    nodes = {node.name: node for node in recorded().nodes}
    assert {name: node.gpu_type for name, node in nodes.items()} == {
        **dict.fromkeys(("n1", "n2", "n3", "n4"), "a100"),
        **dict.fromkeys(("n5", "n6"), "v100"),
    }
    assert nodes["n6"].state == DRAINING and nodes["n1"].state == UP
    assert nodes["n5"].partitions == ("v100",)
    assert nodes["n4"].used == 4


def test_what_is_left_out_is_said() -> None:
    assert recorded().notes == (
        "left out: 1 job without GPUs",
        "left out: 2 waiting parts of heterogeneous jobs, which start together",
    )


def test_answers_of_later_versions_read_the_same() -> None:
    later = snapshot_of(newer_squeue(sample("squeue")), newer_sinfo(sample("sinfo")))
    plain = recorded()
    # What sinfo of later versions does not say is how many GPUs of each node are in use.
    nodes = tuple(replace(node, used=None) for node in plain.nodes)
    assert later == replace(plain, nodes=nodes)


def test_nodes_of_scontrol_read_the_same() -> None:
    answer = json.loads(sample("sinfo"))
    for node in answer["nodes"]:
        node["state"] = [node["state"].upper(), *node["state_flags"]]
        del node["state_flags"]
    assert snapshot_of(sample("squeue"), json.dumps(answer)) == recorded()


@pytest.mark.parametrize(
    ("flags", "state"),
    [
        ("idle", UP),
        ("planned", UP),
        ("down", DOWN),
        (["IDLE", "NOT_RESPONDING"], DOWN),
        (["ALLOCATED", "DRAIN"], DRAINING),
        (["MIXED", "MAINTENANCE"], DRAINING),
    ],
)
def test_a_node_that_drains_or_is_down_gets_nothing_new(flags: object, state: str) -> None:
    answer = json.loads(sample("sinfo"))
    answer["nodes"][0]["state"] = flags
    nodes = snapshot_of(sample("squeue"), json.dumps(answer)).nodes
    assert nodes[0].state == state


def _dead(answer: dict[str, object]) -> str:
    error = {"error": "Unable to contact slurm controller (connect failure)", "error_number": 1}
    return json.dumps({**answer, "nodes": [], "jobs": [], "errors": [error]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: "", "is empty"),
        (lambda _: "slurm_load_jobs error", "is no JSON"),
        (lambda _: "{}", "has no list 'nodes'"),
        (lambda text: _dead(json.loads(text)), "Unable to contact slurm controller"),
        (lambda text: json.dumps({**json.loads(text), "nodes": []}), "no node has GPUs"),
    ],
)
def test_an_answer_that_says_nothing_is_one_clear_error(
    change: Callable[[str], str], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        snapshot_of(sample("squeue"), change(sample("sinfo")))


def test_accounting_has_every_task_and_no_plain_job() -> None:
    past = {job.job.job_id: job for job in past_jobs(sample("sacct"))}
    assert {"5_2", "5_3", "5_4", "5_5"} <= past.keys()
    assert "13" not in past
    running = past["3"]
    assert running.start_s is not None and running.end_s is None
    assert (running.job.gpus, running.job.limit_s) == (8, 600.0)
    assert past["5_2"].start_s is None


@pytest.mark.parametrize(
    ("text", "size"), [("400M", 400 * 2**20), ("1.5G", 1.5 * 2**30), ("", 0.0), ("7", 7 * 2**20)]
)
def test_memory_has_a_unit(text: str, size: float) -> None:
    assert memory_bytes(text) == size
