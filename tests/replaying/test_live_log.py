"""The log of a live cluster: of its present nodes, with what is known of each job only now."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.run_outcomes import drawn_trace, served, simulated, summary_of
from cluster_by_hand import ByHand, spec
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.trace import Trace
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.serving.period import starting_meta
from dovetail.live.serving.scheduler import build_scheduler
from dovetail.live.serving.virtual_live import play
from dovetail.live.store.database import Database
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store
from dovetail.replaying.decisions import read_recording
from dovetail.replaying.live_log import called_in, exported, log_lines, write_log
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission
from timed_requests import request_at

SPEC = JobSpec(name="job", command=("train",), workdir="/")


def manifest(policy: str = "fifo", cluster: str = "1x2", engine: str = "local:2") -> str:
    scheduler = build_scheduler(policy, Cluster.parse(cluster), {}, stated_s=lambda job: 0.0)
    return scheduler.manifest_text(engine)


def test_tasks_are_called_as_lists_call_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    by_hand = ByHand(home)
    jobs = [Submission(spec()), Submission(spec(), (0, 3))]
    by_hand.intake.submit(jobs, key="k", user="ann")
    by_hand.close()
    assert called_in(home) == {"1": "1", "2": "2_0", "3": "2_3"}
    assert called_in(tmp_path / "events.jsonl") == {}


def test_what_a_job_waited_that_began_anew_counts_from_then(tmp_path: Path) -> None:
    table = JobTable.build(["1", "2"], np.array([10.0, 20.0]), np.array([1, 1]))
    trace = Trace.of(table, np.array([300.0, 9000.0]), "two")
    again = [request_at(5000.0, "requeue", 1)]
    queries = play(trace, "fifo", Cluster.uniform(1, 4), {}, calls=again)
    write_log(queries, tmp_path / "events.jsonl")
    recording = read_recording(tmp_path / "events.jsonl")
    one, two = recording.jobs().to_dicts()
    assert one["submit_s"] == pytest.approx(5000.0, abs=1.0)
    assert one["time_to_start_s"] < 1.0 and one["jct_s"] == pytest.approx(300.0, abs=30.0)
    assert 0 <= one["wait_s"] < 30.0 and two["submit_s"] == pytest.approx(20.0)
    mean_s = (one["jct_s"] + two["jct_s"]) / 2
    assert summary_of(recording)["avg_jct_s"] == pytest.approx(mean_s)
    # The order in which the controller knew them stays.
    assert recording.trace.jobs.submit_s.tolist() == pytest.approx([10.0, 20.0])


class Kept:
    """A store with some facts and jobs."""

    def __init__(self, *facts: dict[str, Any], after: int = 0, **specs: JobSpec) -> None:
        self.lines = [json.dumps(fact, separators=(",", ":")) for fact in facts]
        self.specs = {int(name[1:]): spec for name, spec in specs.items()}
        self.kept = {
            "manifest": manifest("sjf-bsbf"),
            "period": json.dumps({"after": after, "policies": ["sjf-bsbf"]}),
        }

    def meta(self, name: str) -> str | None:
        return self.kept.get(name)

    def all_facts(self, after: int = 0) -> Iterator[str]:
        yield from self.lines[after:]

    def job(self, job: int) -> StoredJob | None:
        done = JobRecord(job, submit_s=0.0, state=State.COMPLETED, done_s=7.0)
        return StoredJob(self.specs.get(job, SPEC), done)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Returns the submissions of the log by job."""
        lines = [json.loads(line) for line in log_lines(self)]  # type: ignore[arg-type]
        return {line["job"]: line for line in lines if line.get("e") == "submitted"}


def submitted(t: float, job: int, **rest: Any) -> dict[str, Any]:
    return {"t": t, "e": "submitted", "job": str(job), "gpus": 1, "length_s": None, **rest}


def started(t: float, job: int, gpu: int) -> dict[str, Any]:
    on = {"on": [[0, 1]], "gpu_ids": [[gpu]]}
    return {"t": t, "e": "started", "job": str(job), "how": "start", **on, "rate": 1.0, "from": t}


def ended(t: float, job: int) -> dict[str, Any]:
    return {"t": t, "e": "ended", "job": str(job), "how": "completed"}


def shared_all_along(**specs: JobSpec) -> Kept:
    """Job 1 begins alone; 2 and 3 always share, 3 with 2 alone."""
    return Kept(
        *(submitted(0.0, job) for job in (1, 2, 3)),
        started(0.0, 1, 0),
        started(5.0, 2, 0),
        ended(9.0, 1),
        started(9.0, 3, 0),
        ended(12.0, 2),
        ended(12.0, 3),
        **specs,
    )


def test_lengths_of_jobs_that_always_shared_are_marked_as_guesses() -> None:
    jobs = shared_all_along().jobs()
    assert [jobs[n].get("guessed", False) for n in ("1", "2", "3")] == [False, True, True]
    assert jobs["2"]["work_s"] == 7.0


def test_a_length_that_its_owner_declared_or_that_is_a_clock_is_no_guess() -> None:
    declared, paced = replace(SPEC, duration_s=60.0), replace(SPEC, paced=True, duration_s=60.0)
    jobs = shared_all_along(j2=declared, j3=paced).jobs()
    assert not any(jobs[n].get("guessed") for n in ("1", "2", "3"))


def test_a_job_whose_model_was_seen_alone_is_measured() -> None:
    kept = shared_all_along()
    for row in (0, 1):
        kept.lines[row] = json.dumps({**json.loads(kept.lines[row]), "model": "cnn"})
        kept.lines[row] = kept.lines[row].replace(": ", ":")
    assert [n for n, job in kept.jobs().items() if job.get("guessed")] == ["3"]


def test_a_log_is_of_the_nodes_that_the_cluster_has_now() -> None:
    old = [submitted(0.0, 1), started(0.0, 1, 0), ended(9.0, 1)]
    kept = Kept(*old, submitted(20.0, 2), after=len(old))
    assert list(kept.jobs()) == ["2"]


def test_jobs_that_were_under_way_when_the_nodes_changed_are_refused_in_words() -> None:
    old = [submitted(0.0, 1), started(0.0, 1, 0)]
    with pytest.raises(InputError, match=r"job 1 was active when the nodes .* another --home"):
        Kept(*old, ended(9.0, 1), after=len(old)).jobs()


def test_a_period_begins_with_other_nodes_and_not_with_another_policy() -> None:
    database = Database(None)
    queries = Queries(database.connection)
    store = Store(database, queries)
    said = []
    for policy, cluster, engine in (
        ("fifo", "1x2", "local:2"),
        ("fifo", "1x2", "local:2"),
        ("srtf", "1x2", "local:2"),
        ("srtf", "2x2", "emulated:2x2"),
    ):
        store.keep(starting_meta(queries, manifest(policy, cluster, engine), engine))
        said.append(json.loads(queries.meta("period") or ""))
        database.connection.execute(
            'INSERT INTO facts(t, job, line) VALUES (1.0, NULL, \'{"t":1.0,"e":"woke"}\')'
        )
    fifo, srtf = (json.loads(manifest(policy))["policy"] for policy in ("fifo", "srtf"))
    assert said == [
        {"after": 0, "policies": [fifo]},
        {"after": 0, "policies": [fifo]},
        {"after": 0, "policies": [fifo, srtf]},
        {"after": 3, "policies": [srtf]},
    ]
    database.close()


def test_efficiency_of_a_live_log_is_that_of_the_simulated_run(tmp_path: Path) -> None:
    """Throughput over that on one GPU is in the log, so it weighs there as it does in a run."""
    trace = drawn_trace(12, 0.5, 4, load=1.5, seed=3)
    given = {"switching": "restart:30"}
    queries = play(trace, "afs-p", Cluster.uniform(2, 2), given)
    write_log(queries, log := tmp_path / "events.jsonl")
    recording = read_recording(log)
    gpus = recording.trace.jobs.gpus.tolist()
    assert any(s < 0.95 * g for s, g in zip(recording.scale, gpus, strict=True))
    predicted = simulated(trace, "afs-p", {**given, "cluster": "2x2"})
    summary = summary_of(recording)
    assert summary["cluster_efficiency"] == pytest.approx(predicted.efficiency, rel=0.01)
    assert served(queries).efficiency == pytest.approx(predicted.efficiency, rel=0.01)


def test_a_folder_of_no_cluster_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="specify an event log"), exported(tmp_path):
        pass
