"""What a run leaves out stops it or is said, and GPU types a cluster does not name are ignored."""

import re
from dataclasses import replace

import numpy as np
import pytest

from builders import Row, trace_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.job import Labels
from dovetail.core.tenants import AccountSpec, QueueSpec
from dovetail.core.trace import Recorded, Trace
from dovetail.study.left_out import check_left_out, ignored_types, left_out
from dovetail.study.options import Options
from dovetail.study.run import placeable
from dovetail.traces.describe import describe
from dovetail.traces.hardware import fitting_cluster, gpu_type_rows


def typed(*kinds: str, gpus: int = 1) -> Trace:
    """Returns one job of 100 s a second of each kind."""
    trace = trace_of(*(Row(gpus, 100.0, submit_s=float(i)) for i in range(len(kinds))))
    return replace(trace, jobs=replace(trace.jobs, gpu_type=Labels.of(kinds)))


def ran_on(trace: Trace, nodes: list[str], start_s: list[float]) -> Trace:
    start = np.array(start_s)
    wait_s, never = start - trace.jobs.submit_s, np.zeros(len(trace), np.int64)
    record = Recorded(start, start + trace.duration_s, wait_s, never, Labels.of(nodes))
    return replace(trace, recorded=record)


def options(cluster: str, left_out_max: float = 0.01) -> Options:
    return Options(Cluster.parse(cluster), left_out_max=left_out_max)


def test_types_that_no_group_names_are_ignored_aloud() -> None:
    trace = typed("a100", "v100", "")
    kept, lost = placeable(trace, options("2x4"))
    assert (len(kept), lost) == (3, 0) and kept.jobs.gpu_type.names == ()
    (note,) = check_left_out(trace, options("2x4"))
    assert "a100, v100" in note and "ignored" in note
    assert check_left_out(typed("", ""), options("2x4")) == []


def in_accounts(*accounts: str) -> Trace:
    """Returns jobs of accounts, all in one partition."""
    trace = typed(*("" for _ in accounts))
    queue = Labels.of(["gpu"] * len(accounts))
    return replace(trace, jobs=replace(trace.jobs, account=Labels.of(accounts), queue=queue))


def shared_by(*queues: QueueSpec) -> Options:
    return Options(Cluster((NodeGroup("all", 2, 4),), queues=queues))


def test_jobs_belong_to_the_queue_of_their_user_else_of_their_account() -> None:
    trace = in_accounts("vision", "speech", "vision", "nlp")
    users = Labels.of(["ann", "ann", "bob", "bob"])
    trace = replace(trace, jobs=replace(trace.jobs, user=users))
    ours = shared_by(QueueSpec("prod", accounts=("vision",)), QueueSpec("spot", users=("ann",)))
    kept, _ = placeable(trace, ours)
    assert kept.jobs.queue.texts() == ["spot", "spot", "prod", "gpu"]
    assert placeable(kept, ours)[0].jobs.queue.texts() == ["spot", "spot", "prod", "gpu"]


def test_a_guarantee_of_an_account_that_is_no_queue_stops_the_run() -> None:
    trace = in_accounts("vision", "speech")
    wrong = shared_by(QueueSpec("vision", guaranteed=(("", 4),)))
    mend = re.escape("""add accounts = ["vision"] to the queue""")
    with pytest.raises(InputError, match=f"among its accounts .*{mend}"):
        check_left_out(trace, wrong)
    idle = shared_by(QueueSpec("gpu", weight=2), QueueSpec("prod", guaranteed=(("", 4),)))
    (note,) = check_left_out(trace, idle)
    assert "gives rights to 'prod', and no job is in this queue" in note
    owned = shared_by(QueueSpec("prod", guaranteed=(("", 4),), accounts=("vision",)))
    assert check_left_out(trace, owned) == []


def test_rights_of_a_parent_count_if_a_queue_below_has_jobs() -> None:
    queues = (QueueSpec("top", weight=2), QueueSpec("gpu", parent="top"))
    assert check_left_out(in_accounts("a"), shared_by(*queues)) == []


def test_capitals_of_a_type_do_not_matter() -> None:
    trace = typed("A100", "a100")
    assert placeable(trace, options("2x4:a100"))[1] == 0
    assert ignored_types(trace, Cluster.parse("2x4:a100")) == ""


def test_a_type_that_the_cluster_lacks_stops_the_run_with_the_mend() -> None:
    trace = ran_on(typed("a100", "v100", gpus=4), ["a1", "v1"], [0.0, 1.0])
    with pytest.raises(InputError) as error:
        check_left_out(trace, options("1x4:a100"))
    told = str(error.value)
    assert "1 of 2 jobs (50.0%) with 50.0% of the GPU-hours" in told
    assert "1 for v100 GPUs, which it does not have" in told
    assert "--cluster 1x4:a100+1x4:v100" in told and "--allow-left-out 50%" in told
    (note,) = check_left_out(trace, options("1x4:a100", left_out_max=0.5))
    assert "can never hold 1 of 2 jobs" in note


def test_few_jobs_with_many_gpu_hours_stop_it_too() -> None:
    small = [Row(1, 1.0, submit_s=float(i)) for i in range(999)]
    trace = trace_of(*small, Row(64, 1e6, submit_s=999.0))
    loss = left_out(trace, options("2x4"))
    assert loss.job_share == 0.001 and loss.gpu_share > 0.99
    with pytest.raises(InputError, match="for more GPUs than it has"):
        check_left_out(trace, options("2x4"))
    short = trace_of(*small, Row(64, 0.01, submit_s=999.0))
    assert check_left_out(short, options("2x4")) == []


def test_rows_that_the_import_lost_count() -> None:
    counts = {"read": 40, "usable": 10, "rejected: no duration": 1, "rejected: job step": 29}
    trace = replace(typed(*[""] * 10), counts=counts)
    with pytest.raises(InputError, match=re.escape("1 of 11 jobs (9.1%)")):
        check_left_out(trace, options("2x4"))
    counts.pop("rejected: no duration")
    assert check_left_out(replace(trace, counts=counts), options("2x4")) == []


def test_describe_finds_the_machines_in_starts_ends_and_nodes() -> None:
    trace = typed("a100", "a100", "a100", "v100", gpus=2)
    # Two on one node at once, one right after, and one of another type over two nodes.
    trace = ran_on(trace, ["n1", "n1", "n2", "v[1-2]"], [0.0, 50.0, 150.0, 0.0])
    found = {r.gpu_type: (r.peak_gpus, r.nodes, r.gpus_per_node) for r in gpu_type_rows(trace)}
    assert found == {"a100": (4, 2, 4), "v100": (2, 2, 1)}
    assert describe(trace).cluster == "2x4:a100+2x1:v100"


def test_without_nodes_their_size_is_assumed() -> None:
    trace = ran_on(typed("a100", "a100", gpus=6), ["", ""], [0.0, 1.0])
    assert fitting_cluster(gpu_type_rows(trace)) == "2x8:a100"
    assert fitting_cluster(gpu_type_rows(typed("a100"))) == ""


def tenants(**fields: object) -> Options:
    plain = Cluster.parse("2x4")
    return Options(replace(plain, **fields), left_out_max=0.01)  # type: ignore[arg-type]


def test_a_limit_that_forbids_a_job_is_named_and_not_the_cluster() -> None:
    trace = trace_of(Row(4, 100.0, queue="small"), Row(1, 100.0, queue="small"))
    with pytest.raises(InputError) as error:
        check_left_out(trace, tenants(queues=(QueueSpec("small", quota_gpus=2),)))
    told = str(error.value)
    assert (
        "1 for more than a limit of the cluster's file allows: queue small may hold 2 GPUs" in told
    )
    assert "raise the limit" in told and "use --cluster" not in told


def test_users_whom_the_list_of_their_account_leaves_out_are_said() -> None:
    rows = [Row(1, 9.0, account="lab", user=user) for user in ("ann", "bob", "bob")]
    trace = trace_of(*rows, Row(1, 9.0, account="open", user="bob"))
    accounts = (AccountSpec("lab", users=(("ann", 1),)), AccountSpec("open"))
    (note,) = check_left_out(trace, tenants(accounts=accounts))
    assert note.startswith("2 jobs are of users") and "bob in lab" in note
    assert check_left_out(trace, tenants(accounts=accounts[1:])) == []
