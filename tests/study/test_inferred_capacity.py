"""Nodes that were away are found in the log of a cluster that had them away, and no others."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from recorded_scene import logged
from study_scene import CLUSTER, busy_trace

from builders import Row, trace_of
from dovetail.core.cluster import DRAINING, UP, Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import Labels
from dovetail.core.trace import Recorded, Trace
from dovetail.study.compare import compare
from dovetail.study.inferred import with_inferred_capacity
from dovetail.study.options import Options
from dovetail.traces.inferred_capacity import infer_capacity

HOUR_S = 3600.0
FOUR_NODES = Cluster.parse(CLUSTER)
KNOWN = Options(FOUR_NODES)
one_process = partial(compare, processes=1)


def waiting_log(*, users: str = "ab", gpus: int = 1, last_nodes: str = "n2") -> Trace:
    """Two nodes of one GPU: n2 stands empty from 2 h to 12 h while two jobs wait for n1."""
    jobs = trace_of(
        Row(1, 12 * HOUR_S, user="x"),
        Row(1, 2 * HOUR_S, user="x"),
        Row(gpus, HOUR_S, 3 * HOUR_S, user=users[0]),
        Row(gpus, HOUR_S, 4 * HOUR_S, user=users[-1]),
    )
    start_s = np.array([0.0, 0.0, 12 * HOUR_S, 12 * HOUR_S])
    end_s = np.array([12 * HOUR_S, 2 * HOUR_S, 13 * HOUR_S, 13 * HOUR_S])
    nodes = Labels.of(["n1", "n2", "n1", last_nodes])
    return replace(
        jobs, recorded=Recorded(start_s, end_s, np.full(4, np.nan), np.zeros(4, np.int64), nodes)
    )


def test_a_node_is_away_from_when_the_first_job_waited_until_its_next_job() -> None:
    found = infer_capacity(waiting_log(), Cluster.parse("2x1"))
    assert found.timeline == [(3 * HOUR_S, [(1, DRAINING)]), (12 * HOUR_S, [(1, UP)])]
    (away,) = found.aways
    assert (away.node, away.witnesses) == ("n2", 2)
    assert list(found.nodes) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("log", "cluster"),
    [
        (waiting_log(users="aa"), "2x1"),  # one user may be held
        (waiting_log(gpus=2, last_nodes="n1"), "1x4+1x1"),  # they do not fit on the node
        (waiting_log(last_nodes="n[1-2]"), "2x1"),  # it may have been kept for a job on two nodes
    ],
)
def test_an_empty_node_that_may_have_another_reason_is_not_away(log: Trace, cluster: str) -> None:
    assert infer_capacity(log, Cluster.parse(cluster)).aways == []


def test_a_job_with_a_reservation_is_no_witness() -> None:
    log = waiting_log()
    reserved = replace(log.jobs, reservation=Labels.of(["", "", "course", ""]))
    assert infer_capacity(replace(log, jobs=reserved), Cluster.parse("2x1")).aways == []


DAY_S = 86400.0
OUTAGE = [(DAY_S, [(1, DRAINING), (3, DRAINING)]), (2.5 * DAY_S, [(1, UP), (3, UP)])]
"""Two of the four nodes leave when their jobs are done, and return together."""


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_drained_nodes_of_a_simulated_cluster_are_found_and_only_they(seed: int) -> None:
    trace = busy_trace(1500, 8.0, seed)
    log, _ = logged(trace, "sjf", replace(KNOWN, capacity=OUTAGE))
    found = infer_capacity(log, FOUR_NODES)
    assert [away.node for away in found.aways] == ["n01", "n03"]
    for away in found.aways:
        assert DAY_S <= away.start_s < 2 * DAY_S
        assert away.end_s == pytest.approx(2.5 * DAY_S, abs=600)
    whole, _ = logged(trace, "sjf", KNOWN)
    assert infer_capacity(whole, FOUR_NODES).aways == []


def test_inferred_capacity_brings_the_replay_nearer_to_the_log() -> None:
    log, _ = logged(busy_trace(1500, 8.0), "sjf", replace(KNOWN, capacity=OUTAGE))
    errors = []
    for options in (KNOWN, replace(KNOWN, infer_capacity=True)):
        found = one_process(log, ["sjf"], options)
        assert found.replay_error is not None
        wait = found.replay_error.number("avg_wait_s")
        assert wait is not None
        errors.append(abs(wait.error or 0.0))
    assert errors[1] < errors[0] / 2
    assert any("Capacity inferred: 2 of 4 nodes" in note for note in found.notes)


def test_a_log_without_nodes_or_with_too_many_is_refused() -> None:
    wanted = replace(KNOWN, infer_capacity=True)
    with pytest.raises(InputError, match="does not record the nodes"):
        with_inferred_capacity(wanted, busy_trace())
    with pytest.raises(InputError, match="the log names 2 nodes"):
        infer_capacity(waiting_log(), Cluster.parse("1x1"))


def test_a_node_of_a_type_stands_for_one_of_that_type() -> None:
    log = waiting_log()
    typed = replace(log.jobs, gpu_type=Labels.of(["V100", "A100", "A100", "A100"]))
    nodes = Labels.of(["n1", "n2", "n1", "n2"])
    assert log.recorded is not None
    mixed = replace(log, jobs=typed, recorded=replace(log.recorded, nodes=nodes))
    # n1 ran jobs of both types; the first in the order of names decides a tie.
    found = infer_capacity(mixed, Cluster.parse("2x1:a100+1x1:v100"))
    assert {node for _, changes in found.timeline for node, _ in changes} <= {0, 1}


def test_damaged_node_lists_are_counted() -> None:
    log = waiting_log()
    assert log.recorded is not None
    nodes = Labels.of(["n1", "n2", "n[1-", "n2"])
    found = infer_capacity(
        replace(log, recorded=replace(log.recorded, nodes=nodes)), Cluster.parse("2x1")
    )
    assert found.unreadable == 1
