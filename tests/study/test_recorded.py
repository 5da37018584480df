"""The record as a row: by hand, and against the simulation that wrote it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from recorded_scene import by_hand, listed, logged
from study_scene import CLUSTER, busy_trace

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S
from dovetail.record.result import IF_KNOWN, POLICY, RECORDED
from dovetail.report.report import comparison_report
from dovetail.study.compare import Replication, compare
from dovetail.study.options import Options
from dovetail.study.recorded import interrupted, record_notes, recorded_run

KNOWN = Options(Cluster.parse(CLUSTER))
AVAILABLE = replace(KNOWN, forecast="available")
TWO_GPUS = replace(Options(Cluster.parse("1x2")), physics="linear")
one_process = partial(compare, processes=1)


def four_jobs() -> Trace:
    """Two GPUs; the last job could start at 1500 s, but the cluster starts it at 2000 s."""
    jobs = trace_of(
        Row(2, 1000.0, queue="a"),
        Row(1, 500.0, 100.0, queue="b"),
        Row(1, 400.0, 200.0, queue="b"),
        Row(2, 500.0, 300.0, queue="a"),
    )
    return by_hand(jobs, [0.0, 1000.0, 1000.0, 2000.0], [1000.0, 1500.0, 1400.0, 2500.0])


def test_the_record_of_four_jobs_by_hand() -> None:
    record = recorded_run(four_jobs(), TWO_GPUS)
    assert record is not None
    assert record.jobs["jct_s"].to_list() == [1000.0, 1400.0, 1200.0, 2200.0]
    assert record.jobs["wait_s"].to_list() == [0.0, 900.0, 800.0, 1700.0]
    assert record.number("avg_jct_s") == 1450.0
    assert record.number("median_jct_s") == 1300.0
    assert record.number("p99_jct_s") == 2200.0
    assert record.number("avg_wait_s") == record.number("avg_time_to_start_s") == 850.0
    assert record.number("makespan_s") == 2500.0
    # 2 GPUs until 1400 s, 1 until 1500 s, none until 2000 s, 2 until 2500 s.
    assert record.number("gpu_utilization") == pytest.approx(3900 / 5000)
    assert record.gpu_seconds == pytest.approx(
        {
            "useful": 3900.0,
            "slowdown": 0.0,
            "switching": 0.0,
            "idle_waiting": 1100.0,
            "idle_empty": 0.0,
            "down": 0.0,
        }
    )
    assert record.series["held_gpus"].to_list() == [2, 2, 2, 2, 2, 1, 0, 2, 0]
    waits = dict(record.splits["queue"].select("group", "avg_wait_s").iter_rows())
    assert waits == {"a": 850.0, "b": 850.0}


def test_the_replay_error_of_four_jobs_by_hand() -> None:
    found = one_process(four_jobs(), ["fifo"], TWO_GPUS)
    error = found.replay_error
    assert error is not None
    mean = error.number("avg_jct_s")
    assert mean is not None
    assert (mean.recorded_s, mean.replayed_s) == (1450.0, 1325.0)
    assert mean.error == pytest.approx(1325 / 1450 - 1)
    assert error.start_correlation == pytest.approx(1.0)
    assert error.near == 0.75
    (departure,) = error.departures
    assert (departure.job_id, departure.t_s, departure.why) == ("3", 1500.0, "free in the log")
    assert [(g.group, g.jobs, g.wait.replayed_s) for g in error.by_queue] == [
        ("a", 2, 600.0),
        ("b", 2, 850.0),
    ]


def test_a_start_that_waits_for_a_reservation_says_so() -> None:
    jobs = four_jobs()
    table = replace(
        jobs.jobs, reservation=trace_of(*[Row(1, 1.0, queue=q) for q in "   x"]).jobs.queue
    )
    found = one_process(replace(jobs, jobs=table), ["fifo"], TWO_GPUS)
    assert found.replay_error is not None
    assert found.replay_error.whys == (("reservation", 1),)


def test_free_gpus_of_another_type_do_not_explain_a_start() -> None:
    wanted = [Row(2, 1000.0, at_s, gpu_type="A100") for at_s in (0.0, 10.0, 20.0)]
    jobs = trace_of(*wanted, Row(1, 500.0, 30.0, gpu_type="v100"))
    log = by_hand(jobs, [0.0, 2000.0, 1000.0, 30.0], [1000.0, 3000.0, 2000.0, 530.0])
    mixed = replace(TWO_GPUS, cluster=Cluster.parse("1x2:a100+1x2:v100"))
    found = one_process(log, ["fifo:bypass=skip"], mixed)
    assert found.replay_error is not None
    whys = {d.job_id: d.why for d in found.replay_error.departures}
    # All V100s are free at 1000 s on both sides, and of no use to either job.
    assert whys == {"1": "overtaken in the log", "2": "overtook in the log"}


def test_a_job_of_another_type_overtakes_nobody() -> None:
    jobs = trace_of(
        Row(2, 1000.0, gpu_type="a100"),
        Row(2, 500.0, 10.0, gpu_type="a100"),
        Row(1, 500.0, 30.0, gpu_type="v100"),
    )
    log = by_hand(jobs, [0.0, 2000.0, 30.0], [1000.0, 2500.0, 530.0])
    mixed = replace(TWO_GPUS, cluster=Cluster.parse("1x2:a100+1x2:v100"))
    found = one_process(log, ["fifo:bypass=skip"], mixed)
    assert found.replay_error is not None
    assert found.replay_error.whys == (("free in the log", 1),)


@pytest.mark.parametrize("policy", ["fifo", "backfill", "sjf", "srtf", "tiresias"])
def test_the_record_of_a_simulation_is_the_simulation(policy: str) -> None:
    trace, run = logged(busy_trace(), policy, KNOWN)
    found = one_process(trace, ["fifo:bypass=skip", policy], KNOWN, site=policy)
    record = found.results[RECORDED]
    for number in (
        "avg_jct_s",
        "median_jct_s",
        "p99_jct_s",
        "avg_wait_s",
        "avg_time_to_start_s",
        "makespan_s",
        "gpu_utilization",
        "avg_queue_length",
        "max_queue_length",
        "preemptions",
    ):
        assert record.number(number) == pytest.approx(run.number(number), rel=1e-9), number
    first, *others = found.table.to_dicts()
    (same,) = [row for row in others if row["policy"] == run.policy]
    assert first["policy"] == RECORDED
    assert first["ratio_to_baseline"] == pytest.approx(same["ratio_to_baseline"], rel=1e-9)
    assert (first["low"], first["high"]) == pytest.approx((same["low"], same["high"]))
    error = found.replay_error
    assert error is not None
    assert error.policy == run.policy
    assert [d.error for d in error.numbers] == pytest.approx([0.0] * 6, abs=1e-9)
    assert (error.near, error.departures) == (1.0, ())
    for group in (*error.by_size, *error.by_queue):
        assert group.wait.recorded_s == pytest.approx(group.wait.replayed_s, abs=1e-6)


def test_jobs_without_a_complete_record_are_left_out_aloud() -> None:
    trace, _ = logged(busy_trace(), "fifo", KNOWN)
    assert trace.recorded is not None
    end_s = trace.recorded.end_s.copy()
    end_s[::7] = np.nan
    cut = replace(trace, recorded=replace(trace.recorded, end_s=end_s))
    found = one_process(cut, ["fifo", "backfill"], KNOWN, baseline="backfill")
    lost = int(np.isnan(end_s).sum())
    assert found.cautions[0].startswith(f"{lost} of {len(trace)} jobs have no complete record")
    kept = np.isfinite(end_s)
    jct_s = {n: r.jobs["jct_s"].to_numpy()[kept].mean() for n, r in found.results.items()}
    assert found.table["ratio_to_baseline"][0] == pytest.approx(jct_s[RECORDED] / jct_s["backfill"])
    assert found.results[RECORDED].number("x_bound") is None


def test_a_record_that_holds_more_than_the_cluster_names_one_that_fits() -> None:
    trace, _ = logged(busy_trace(), "fifo", KNOWN)
    found = one_process(trace, ["fifo"], replace(KNOWN, cluster=Cluster.parse("3x4")))
    assert "the cluster given has 12" in found.cautions[0]
    assert "--cluster 4x4 has enough" in found.cautions[0]
    assert found.results[RECORDED].gpu_seconds == {}


def test_the_record_is_never_the_policy_to_choose() -> None:
    trace = busy_trace()
    submit_s = trace.jobs.submit_s
    perfect = by_hand(trace, submit_s.tolist(), (submit_s + trace.duration_s).tolist())
    found = one_process(perfect, ["fifo", "backfill", "sjf"], AVAILABLE, keep_spans=True)
    assert found.ranked["policy"][0] == RECORDED
    assert found.best not in (RECORDED, "backfill, known", "sjf:bypass=skip, known")
    today = found.contrast("today")
    assert today is not None
    assert (today.against, today.ratio > 1) == (RECORDED, True)
    assert len(found.results[found.best].spans)


def test_windows_count_the_jobs_of_the_record_that_were_submitted_in_them() -> None:
    trace, run = logged(busy_trace(), "fifo", KNOWN)
    found = one_process(trace, ["fifo"], KNOWN, replication=Replication(4, 0.9 * DAY_S))
    submit_s = trace.jobs.submit_s
    starts = np.linspace(submit_s[0], submit_s[-1] - 0.9 * DAY_S, 4)
    inside = np.any([(submit_s >= s) & (submit_s < s + 0.9 * DAY_S) for s in starts], axis=0)
    mean_s = run.jobs["jct_s"].to_numpy()[inside].mean()
    row = found.table.row(0, named=True)
    assert (row["policy"], row["avg_jct_s"]) == (RECORDED, pytest.approx(mean_s))
    assert row["p99_jct_s"] is None


def test_a_restarted_job_keeps_its_whole_wait_and_its_first_start() -> None:
    trace = by_hand(trace_of(Row(2, 300.0)), [100.0], [1000.0], wait_s=[700.0], restarts=[1])
    record = recorded_run(trace, TWO_GPUS)
    assert record is not None
    assert record.number("avg_time_to_start_s") == 100.0
    assert record.number("avg_wait_s") == 700.0
    # The log does not say why the job ran again.
    assert (record.number("preemptions"), record.number("restarts_untold")) == (None, 1)
    assert record.number("gpu_utilization") == pytest.approx(600 / 2000)
    unknown = by_hand(trace_of(Row(2, 300.0)), [100.0], [1000.0], restarts=[1])
    assert recorded_run(unknown, TWO_GPUS) is None


CAUSES = [
    (0, 100.0, 200.0, "PREEMPTED"),
    (0, 300.0, 400.0, "NODE_FAIL"),
    (0, 500.0, 700.0, ""),
    (1, 800.0, 900.0, "REQUEUED"),
    (1, 900.0, 1000.0, ""),
]


def with_causes() -> Trace:
    """One GPU for a job with three runs, then one with two; it is held for 40 s before its last."""
    jobs = trace_of(Row(1, 400.0), Row(1, 200.0, 750.0), Row(1, 50.0, 1000.0))
    waits = {"wait_s": [260.0, 50.0, 0.0], "restarts": [2.0, 1.0, 3.0]}
    trace = by_hand(jobs, [100.0, 800.0, 1000.0], [700.0, 1000.0, 1050.0], **waits)
    assert trace.recorded is not None
    runs = listed(CAUSES, [0.0, 0.0, 40.0, 0.0, 0.0])
    return replace(trace, recorded=replace(trace.recorded, runs=runs))


def test_lost_gpus_are_counted_by_their_causes() -> None:
    record = recorded_run(with_causes(), TWO_GPUS)
    assert record is not None
    counts = {
        key: record.number(key)
        for key in ("preemptions", "node_failures", "requeues", "restarts_untold")
    }
    assert counts == {"preemptions": 1, "node_failures": 1, "requeues": 1, "restarts_untold": 3}
    # Of the third job the log tells nothing but how often it started.
    assert record.jobs["preemptions"].to_list() == [1, 0, None]
    (note,) = interrupted(with_causes())
    assert "6 times" in note and "1 with a failed node, 1 by a requeue, 3 for a reason" in note
    assert interrupted(busy_trace()) == []


def test_a_record_may_exceed_the_gpus_only_where_runs_are_not_listed() -> None:
    (note,) = [n for n in record_notes(with_causes()) if "may exceed" in n]
    assert note.startswith("The log does not list the runs of 1 restarted job:")
    listed_only = with_causes().take(np.array([0, 1]))
    assert not any("may exceed" in n for n in record_notes(listed_only))
    assert "may exceed" not in comparison_report(one_process(four_jobs(), ["fifo"], TWO_GPUS))


def test_the_runs_of_a_job_are_drawn_when_they_were() -> None:
    record = recorded_run(with_causes(), TWO_GPUS)
    assert record is not None
    held = dict(record.series.select("t_s", "held_gpus").iter_rows())
    starts = {0.0: 0, 100.0: 1, 200.0: 0, 300.0: 1, 400.0: 0, 500.0: 1, 700.0: 0, 800.0: 1}
    assert {t: held[t] for t in starts} == starts
    waiting = dict(record.series.select("t_s", "waiting").iter_rows())
    # The hold before the third run comes first; no one waits in it.
    assert (waiting[400.0], waiting[440.0], waiting[500.0]) == (0, 1, 0)
    assert record.jobs["service_gpu_s"].to_list() == [400.0, 200.0, 50.0]


def test_known_lengths_are_rows_of_their_own_beside_what_a_site_has() -> None:
    found = one_process(busy_trace(), ["fifo", "backfill", "srtf"], AVAILABLE)
    rows = {r["policy"]: (r["kind"], r["forecast"]) for r in found.table.to_dicts()}
    assert rows == {
        "fifo:bypass=strict": (POLICY, "unknown"),
        "backfill": (POLICY, "predicted"),
        "srtf:bypass=skip": (POLICY, "predicted"),
        "backfill, known": (IF_KNOWN, "known"),
        "srtf:bypass=skip, known": (IF_KNOWN, "known"),
    }
    told = one_process(busy_trace(), ["backfill", "srtf"], KNOWN)
    known = dict(found.table.select("policy", "avg_jct_s").iter_rows())
    for name, mean_s in told.table.select("policy", "avg_jct_s").iter_rows():
        assert known[f"{name}, known"] == mean_s


def test_each_question_is_one_paired_ratio() -> None:
    policies = ["fifo", "backfill", "sjf", "srtf", "afs-l"]
    elastic = replace(AVAILABLE, adopt=(("elastic", 1.0),))
    found = one_process(busy_trace(), policies, elastic)
    mean_s = dict(found.table.select("policy", "avg_jct_s").iter_rows())
    asked = {c.asks: (c.policy.partition(":")[0], c.against) for c in found.contrasts}
    best = min(("fifo:bypass=strict", "backfill", "sjf:bypass=skip"), key=lambda n: mean_s[n])
    assert asked["today"] == (best.partition(":")[0], "fifo:bypass=strict")
    assert asked["preemption"] == ("srtf", best)
    assert asked["known lengths"][1] == best
    assert asked["elasticity"] == ("afs-l", best)
    assert "sharing" not in asked
    for contrast in found.contrasts:
        ratio = mean_s[contrast.policy] / mean_s[contrast.against]
        assert contrast.ratio == pytest.approx(ratio)
        assert contrast.low is None or contrast.low <= contrast.ratio <= (contrast.high or 0)


def test_told_the_truth_nothing_is_said_of_today() -> None:
    assert one_process(busy_trace(), ["fifo", "srtf"], KNOWN).contrasts == []
