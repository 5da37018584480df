"""The log of an operator (tests/sacct_log.py) as a record: requeues, suspensions, two GPU types."""

from collections import Counter
from dataclasses import replace
from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from recorded_scene import listed

from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable, Labels
from dovetail.core.trace import ImportRecord, Recorded, Trace
from dovetail.record.result import RECORDED
from dovetail.study.compare import compare
from dovetail.study.options import Options
from dovetail.study.recorded import recorded_run, with_hours
from dovetail.traces.inferred_capacity import infer_capacity
from sacct_log import FIRST_S, LoggedJob, logged_jobs

CLUSTER = Cluster.parse("9x4:a100+4x4:v100")
OPTIONS = Options(CLUSTER, forecast="limit")


@cache
def ran() -> tuple[LoggedJob, ...]:
    """Returns the jobs that held GPUs, in order of submission."""
    held = [j for j in logged_jobs() if sum(a.elapsed_s for a in j.attempts) > 0]
    return tuple(sorted(held, key=lambda job: (job.submit_s, job.job_id)))


@cache
def log() -> Trace:
    """Returns the trace that an import makes of them: the last run is the work."""
    jobs = ran()
    table = JobTable.build(
        [job.job_id for job in jobs],
        np.array([job.submit_s - FIRST_S for job in jobs]),
        np.array([job.gpus for job in jobs]),
        user=Labels.of([job.user for job in jobs]),
        account=Labels.of([job.account for job in jobs]),
        queue=Labels.of([job.gpu_type for job in jobs]),
        gpu_type=Labels.of([job.gpu_type for job in jobs]),
        reservation=Labels.of([job.reservation for job in jobs]),
        time_limit_s=np.array([4.0 * max(1.0, job.run_s) for job in jobs]),
    )
    run_s = np.array([max(1.0, job.attempts[-1].elapsed_s) for job in jobs])
    held_s = np.array([sum(a.elapsed_s for a in job.attempts) for job in jobs])
    end_s = np.array([job.end_s - FIRST_S for job in jobs])
    record = Recorded(
        np.array([job.attempts[0].start_s - FIRST_S for job in jobs]),
        end_s,
        end_s - table.submit_s - held_s,
        np.array([job.restarts for job in jobs]),
        Labels.of(
            [f"{j.gpu_type}-[{','.join(f'{n:02}' for n in j.attempts[-1].nodes)}]" for j in jobs]
        ),
        runs=listed(
            [
                (row, run.start_s, run.end_s, run.state if run is not job.attempts[-1] else "")
                for row, job in enumerate(jobs)
                for run in (job.attempts if job.restarts else ())
            ]
        ),
    )
    return replace(Trace.of(table, run_s, "sacct"), recorded=record)


def test_the_record_and_the_replay_of_an_operators_log() -> None:
    found = compare(log(), ["backfill", "sjf"], OPTIONS, processes=2)
    record = found.results[RECORDED]
    # Nothing exceeds the cluster that wrote the log, whatever its requeued jobs hide.
    assert found.cautions == []
    held_gpu_s = sum(a.elapsed_s * job.gpus for job in ran() for a in job.attempts)
    assert record.jobs["service_gpu_s"].sum() == pytest.approx(held_gpu_s)
    assert sum(record.gpu_seconds.values()) == pytest.approx(
        CLUSTER.gpus * (record.number("makespan_s") or 0.0)
    )
    causes = Counter(run.state for job in ran() for run in job.attempts[:-1])
    assert causes == {
        "PREEMPTED": record.number("preemptions"),
        "NODE_FAIL": record.number("node_failures"),
        "REQUEUED": record.number("requeues"),
    }
    assert any(f"{causes['NODE_FAIL']} with a failed node" in note for note in found.notes)
    assert {"hour", "weekday", "account"} <= set(record.splits)
    assert sum(record.splits["hour"]["jobs"]) == len(ran())
    error = found.replay_error
    assert error is not None
    assert (error.policy, error.jobs) == ("backfill", len(ran()))
    assert {group.group for group in error.by_queue} == {"a100", "v100"}
    assert sum(number for _, number in error.whys) == round((1 - error.near) * error.jobs)
    assert [c.against for c in found.contrasts][:1] == [RECORDED]


def test_hours_and_weekdays_are_those_of_the_clocks_of_the_site() -> None:
    origin = ImportRecord("sacct.txt", "slurm", {}, 0.0, 0.0, epoch_s=FIRST_S, zone="Europe/Berlin")
    trace = replace(log(), imported=origin)
    run = recorded_run(trace, OPTIONS)
    assert run is not None
    splits = with_hours({RECORDED: run}, trace)[RECORDED].splits
    zone = ZoneInfo("Europe/Berlin")
    local = [datetime.fromtimestamp(job.submit_s, zone) for job in ran()]
    for split, form in (("hour", "%H"), ("weekday", "%a")):
        truth = Counter(moment.strftime(form) for moment in local)
        assert dict(splits[split].select("group", "jobs").iter_rows()) == truth
    # The log goes over a change of clocks, so a fixed offset is not enough.
    assert len({moment.utcoffset() for moment in local}) == 2


def test_a_log_without_outages_names_no_node_away() -> None:
    found = infer_capacity(log(), CLUSTER)
    assert found.aways == []
    assert len(found.nodes) == 13
