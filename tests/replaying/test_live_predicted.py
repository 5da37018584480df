"""The jobs of a live cluster simulated: what users, limits and nodes did is done again."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.run_outcomes import POLICIES, drawn_trace
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.trace import Trace
from dovetail.live.jobs.lifecycle import State
from dovetail.live.serving.virtual_live import play, specs_of
from dovetail.live.store.queries import Queries
from dovetail.replaying.decisions import read_recording
from dovetail.replaying.live_log import write_log
from dovetail.replaying.predicted import predict
from dovetail.replaying.script import happened
from dovetail.wire.spec import Dependency, JobSpec
from store_reads import all_jobs
from timed_requests import request_at

JOBS = 24
CLUSTER = Cluster.uniform(2, 2)


def busy_cluster(policy: str, seed: int) -> Queries:
    """Returns the store of a cluster whose users cancel, hold, put back, limit and chain jobs."""
    draw = random.Random(seed)
    trace = drawn_trace(JOBS, 1.0, 4, load=1.3, seed=seed)
    specs: list[JobSpec] = specs_of(trace)
    asked = [request_at(900.0, "drain", node=0), request_at(1800.0, "undrain", node=0)]
    submit_s, work_s = trace.jobs.submit_s.tolist(), trace.duration_s.tolist()
    for row, (t, long_s) in enumerate(zip(submit_s, work_s, strict=True)):
        kind, job = draw.random(), row + 1
        if kind < 0.1:
            asked.append(request_at(t + draw.uniform(10, 2 * long_s + 300), "cancel", job))
        elif kind < 0.2:
            asked.append(request_at(t + draw.uniform(10, long_s + 300), "requeue", job))
        elif kind < 0.3:
            specs[row] = replace(specs[row], hold=True)
            asked.append(request_at(t + draw.uniform(60, 900), "release", job))
        elif kind < 0.4:
            held_s = t + draw.uniform(1, 200)
            asked.append(request_at(held_s, "hold", job))
            asked.append(request_at(held_s + draw.uniform(60, 900), "release", job))
        elif kind < 0.5:
            specs[row] = replace(specs[row], time_limit_s=0.5 * long_s)
        elif kind < 0.65 and row:
            after = Dependency(draw.choice(("after", "afterany", "afterok")), row)
            specs[row] = replace(specs[row], after=(after,))
    # A dependency that cannot be met any more waits for ever.
    asked += [request_at(40_000.0, "cancel", job) for job in range(1, JOBS + 1)]
    return play(trace, policy, CLUSTER, {"switching": "restart:30"}, specs=specs, calls=asked)


@pytest.mark.parametrize("seed", [2, 8])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_simulator_foretells_what_a_cluster_with_busy_users_did(
    tmp_path: Path, policy: str, seed: int
) -> None:
    log = tmp_path / "events.jsonl"
    write_log(busy_cluster(policy, seed), log)
    found = predict(log)
    assert len(found.jobs) > JOBS / 2
    assert found.predicted_jct_s == pytest.approx(found.real_jct_s, rel=0.001)
    assert found.predicted_makespan_s == pytest.approx(found.real_makespan_s, rel=0.001)
    assert found.guessed == () and found.policies == (found.policy,)


def test_the_users_of_these_clusters_are_busy() -> None:
    seen: Counter[str] = Counter()
    for seed in (2, 8):
        queries = busy_cluster("fifo", seed)
        seen.update(str(state) for _, state in queries.states())
        seen.update('"e":"withdrawn"' for line in queries.all_facts() if "withdrawn" in line)
        seen.update("requeued" for line in queries.all_facts() if '"requeued"' in line)
        seen.update("after" for job in all_jobs(queries) if job.spec.after)
    for kind in (State.COMPLETED, State.CANCELLED, State.TIMEOUT):
        assert seen[str(kind)] >= 2, kind
    assert seen["requeued"] and seen['"e":"withdrawn"'] and seen["after"] >= 4


def test_tasks_of_a_limited_array_come_when_others_end(tmp_path: Path) -> None:
    long_s = np.array([100.0, 200.0, 300.0, 50.0, 60.0])
    names = [str(number) for number in range(1, 6)]
    trace = Trace.of(JobTable.build(names, np.zeros(5), np.ones(5, np.int64)), long_s, "array")
    specs = [replace(spec, at_once=2) for spec in specs_of(trace)]
    log = tmp_path / "events.jsonl"
    write_log(play(trace, "fifo", CLUSTER, {}, specs=specs), log)
    script = happened(read_recording(log)).script
    assert [row for _, row in script.arrivals] == [0, 1]
    come = {end: [follow.job for follow in then] for end, then in script.after_end.items()}
    assert come == {0: [2], 1: [3], 3: [4]}
    found = predict(log)
    assert found.predicted_jct_s == pytest.approx(found.real_jct_s, rel=0.02)


def test_another_policy_may_be_asked_what_it_would_have_done(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    write_log(busy_cluster("fifo", 2), log)
    shortest = predict(log, "srtf")
    assert shortest.policy.startswith("srtf") and shortest.policies == ("fifo:bypass=strict",)
    assert shortest.predicted_jct_s < 0.97 * shortest.real_jct_s


def test_without_a_completed_job_there_is_nothing_to_foretell(tmp_path: Path) -> None:
    trace = drawn_trace(12, 0.5, 4, load=1.5, seed=3)
    asked = [
        request_at(t + 1.0, "cancel", n + 1) for n, t in enumerate(trace.jobs.submit_s.tolist())
    ]
    write_log(play(trace, "fifo", CLUSTER, {}, calls=asked), log := tmp_path / "events.jsonl")
    with pytest.raises(InputError, match="no job has completed yet"):
        predict(log)
