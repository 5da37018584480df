"""Single rows and jobs of sacct whose reading is not obvious, one small log each."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from dovetail.core.errors import InputError
from dovetail.core.host_list import readable_host_names
from dovetail.core.trace import ENDS, Recorded, Trace
from dovetail.core.units import HOUR_S
from dovetail.record.recorded import recorded_jobs, recorded_wait_s
from dovetail.study.chargeback import recorded_holdings
from dovetail.study.recorded import held_back
from dovetail.traces.canonical import read_trace, to_frame, write_trace
from dovetail.traces.importing import import_rows, import_trace, sniff
from dovetail.traces.readers.format import ReadOptions
from dovetail.traces.readers.sacct_lines import FIELDS
from dovetail.traces.readers.sacct_requeues import (
    CONTRADICTORY,
    LIMIT_OF_RUNS,
    NUMBER_AGAIN,
    RUN_OF_A_JOB,
    SAME_ROW_TWICE,
)
from dovetail.traces.readers.slurm import (
    COMPONENT,
    ELAPSED_COUNTS,
    NO_STATE,
    NO_ZONE,
    PAST_LIMIT,
    SEVERAL_TYPES,
    SLURM,
)
from dovetail.traces.rows import adjusted
from dovetail.traces.transform import rebased

DAY = "2024-03-04T"
COLUMNS = "JobID|User|Partition|State|Submit|Start|End|Elapsed|Suspended|NodeList|AllocTRES"


def row(
    job: str,
    state: str,
    submit: str,
    start: str,
    end: str,
    elapsed: str,
    *,
    suspended: str = "00:00:00",
    user: str = "ann",
    nodes: str = "n1",
    gpus: str = "gres/gpu=2",
    day: str = DAY,
) -> str:
    """Returns a line of the log; times are of the clock, `-` prints None."""
    times = ["None" if t == "-" else t if "T" in t else day + t for t in (submit, start, end)]
    return "|".join((job, user, "gpu", state, *times, elapsed, suspended, nodes, gpus))


def read(tmp_path: Path, *rows: str, zone: str = "UTC", columns: str = COLUMNS) -> Trace:
    path = tmp_path / "log.txt"
    path.write_text("\n".join((columns, *rows)) + "\n")
    return import_trace([path], "slurm", options=ReadOptions(timezone=zone), origin="first")


def recorded(trace: Trace) -> Recorded:
    assert trace.recorded is not None
    return trace.recorded


ONE_HOUR = ("10:00:00", "10:10:00", "11:10:00", "01:00:00")


def test_the_runs_of_a_requeued_job_are_one_job(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        row("7", "NODE_FAIL", "10:00:00", "10:10:00", "11:10:00", "01:00:00"),
        row("7", "PREEMPTED", "11:10:00", "11:20:00", "11:30:00", "00:10:00"),
        row("7", "FAILED", "11:30:01", "11:40:00", "13:40:00", "01:50:00", suspended="00:10:00"),
    )
    record = recorded(trace)
    assert trace.duration_s.tolist() == [3 * 3600.0]
    assert (record.start_s[0], record.end_s[0]) == (600.0, 3600 * 3 + 2400.0)
    # Three times ten minutes; the suspended job kept its GPUs.
    assert (record.wait_s[0], record.restarts[0]) == (1800.0, 2)
    assert ENDS[trace.end[0]] == "failed"
    assert trace.counts[f"joined: {RUN_OF_A_JOB}"] == 2


LIMITED = COLUMNS.replace("|AllocTRES", "|AllocTRES|Timelimit")


def test_the_limit_of_a_requeued_job_holds_for_its_last_run(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        row("7", "NODE_FAIL", "10:00:00", "10:10:00", "11:10:00", "01:00:00") + "|01:30:00",
        row("7", "COMPLETED", "11:10:00", "11:20:00", "12:20:00", "01:00:00") + "|01:30:00",
        row("8", "PREEMPTED", "10:00:00", "10:10:00", "10:20:00", "00:10:00") + "|00:30:00",
        row("8", "TIMEOUT", "10:20:00", "10:20:00", "10:50:00", "00:30:00") + "|00:30:00",
        columns=LIMITED,
    )
    assert trace.jobs.time_limit_s.tolist() == [2.5 * HOUR_S, 40 * 60]
    assert trace.counts[adjusted(LIMIT_OF_RUNS)] == 2
    assert trace.duration_s.tolist() == [2 * HOUR_S, 40 * 60]


def test_a_limit_admits_the_seconds_that_slurm_took_to_end_the_job(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        row("7", "TIMEOUT", "10:00:00", "10:10:00", "11:10:21", "01:00:21") + "|01:00:00",
        row("8", "COMPLETED", *ONE_HOUR) + "|01:00:00",
        columns=LIMITED,
    )
    assert trace.jobs.time_limit_s.tolist() == [HOUR_S + 21, HOUR_S]
    assert trace.counts[adjusted(PAST_LIMIT)] == 1


def test_a_job_cancelled_while_it_waited_again_keeps_what_it_ran(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        row("7", "PREEMPTED", *ONE_HOUR),
        row("7", "CANCELLED by 5", "11:10:00", "-", "12:00:00", "00:00:00", nodes="None assigned"),
    )
    record = recorded(trace)
    assert trace.duration_s.tolist() == [3600.0] and record.restarts.tolist() == [0]
    assert record.wait_s.tolist() == [3600.0] and ENDS[trace.end[0]] == "cancelled"


def test_a_job_that_waits_or_runs_again_at_the_end_of_the_log_is_not_ended(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        row("7", "PREEMPTED", *ONE_HOUR),
        row("7", "PENDING", "11:10:00", "-", "-", "00:00:00", nodes="None assigned"),
        row("8", "RUNNING", "11:10:00", "11:10:00", "-", "05:00:00"),
        row("9", "PENDING", "11:10:00", "-", "-", "00:00:00", nodes="None assigned"),
        row("10", "COMPLETED", *ONE_HOUR),
    )
    assert trace.jobs.job_id == ("10",)
    assert trace.counts["rejected: not ended yet"] == 2
    assert trace.counts["rejected: not started yet"] == 1
    assert trace.counts["read"] == 5


@pytest.mark.parametrize(
    "second",
    [
        row("7", "COMPLETED", "12:00:00", "12:10:00", "13:10:00", "01:00:00", user="bob"),
        row("7", "COMPLETED", "12:00:00", "12:10:00", "13:10:00", "01:00:00", gpus="gres/gpu=4"),
        row("7", "COMPLETED", "10:30:00", "10:40:00", "11:40:00", "01:00:00"),
    ],
    ids=["another user", "another size", "overlapping"],
)
def test_rows_that_cannot_be_one_job_are_jobs_of_their_own(tmp_path: Path, second: str) -> None:
    trace = read(tmp_path, row("7", "NODE_FAIL", *ONE_HOUR), second)
    assert trace.jobs.job_id == ("7", "7#2")
    assert trace.duration_s.tolist() == [3600.0, 3600.0]
    assert recorded(trace).restarts.tolist() == [0, 0]
    assert trace.counts[f"adjusted: {NUMBER_AGAIN}"] == 1


def test_a_row_that_overlaps_another_of_its_submission_is_rejected(tmp_path: Path) -> None:
    second = row("7", "COMPLETED", "10:00:00", "10:40:00", "11:40:00", "01:00:00")
    trace = read(tmp_path, row("7", "NODE_FAIL", *ONE_HOUR), second)
    assert trace.duration_s.tolist() == [3600.0]
    assert trace.counts[f"rejected: {CONTRADICTORY}"] == 1


def test_a_job_number_given_anew_after_a_completed_job_is_another_job(tmp_path: Path) -> None:
    later = row("7", "COMPLETED", "12:00:00", "12:10:00", "12:20:00", "00:10:00")
    trace = read(tmp_path, row("7", "COMPLETED", *ONE_HOUR), later)
    assert trace.duration_s.tolist() == [3600.0, 600.0]
    assert trace.jobs.job_id == ("7", "7#2")


def test_a_job_number_given_anew_a_year_after_a_failure_is_no_requeue(tmp_path: Path) -> None:
    year = "2025-03-04T"
    later = row("7", "COMPLETED", "12:00:00", "12:10:00", "12:20:00", "00:10:00", day=year)
    trace = read(tmp_path, later, row("7", "FAILED", *ONE_HOUR))
    assert trace.jobs.job_id == ("7", "7#2")
    assert recorded(trace).wait_s.tolist() == [600.0, 600.0]
    assert recorded(trace).restarts.tolist() == [0, 0]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_the_lines_decides_nothing(tmp_path: Path, order: tuple[int, ...]) -> None:
    rows = (
        row("7", "REQUEUED", "10:00:00", "10:10:00", "11:10:00", "01:00:00"),
        row("7", "PREEMPTED", "11:10:00", "11:20:00", "11:30:00", "00:10:00"),
        row("7", "COMPLETED", "11:30:01", "11:40:00", "13:40:00", "02:00:00"),
    )
    trace = read(tmp_path, *(rows[i] for i in order))
    assert trace.duration_s.tolist() == [3600.0 + 600.0 + 7200.0]
    assert recorded(trace).restarts.tolist() == [2] and trace.counts["usable"] == 1


def months(tmp_path: Path, *files: Sequence[str]) -> Trace:
    """Returns the trace of several files, `march.txt` first."""
    paths = [tmp_path / f"{name}.txt" for name in ("march", "april")]
    for path, rows in zip(paths, files, strict=True):
        path.write_text("\n".join((COLUMNS, *rows)) + "\n")
    return import_trace(paths, options=ReadOptions(timezone="UTC"), origin="first")


def test_a_job_over_midnight_that_is_in_two_months_is_one_job(tmp_path: Path) -> None:
    running = row("7", "RUNNING", "10:00:00", "10:10:00", "-", "00:20:00")
    done = row("8", "COMPLETED", *ONE_HOUR)
    failed = row("9", "NODE_FAIL", *ONE_HOUR)
    again = row("9", "COMPLETED", "11:10:00", "11:20:00", "12:20:00", "01:00:00")
    trace = months(
        tmp_path, [running, done, failed], [row("7", "COMPLETED", *ONE_HOUR), done, again]
    )
    assert trace.jobs.job_id == ("7", "8", "9")
    assert trace.duration_s.tolist() == [3600.0, 3600.0, 7200.0]
    assert trace.counts[f"joined: {SAME_ROW_TWICE}"] == 2
    assert trace.counts[f"joined: {RUN_OF_A_JOB}"] == 1


def test_jobs_of_one_number_on_two_clusters_stay_apart(tmp_path: Path) -> None:
    other = row("7", "COMPLETED", "10:00:00", "10:05:00", "11:05:00", "01:00:00", user="bob")
    trace = months(tmp_path, [row("7", "COMPLETED", *ONE_HOUR)], [other])
    assert trace.jobs.job_id == ("april:7", "march:7")
    assert recorded(trace).wait_s.tolist() == [300.0, 600.0]


def test_a_log_without_states_says_that_all_jobs_count_as_completed(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    values = row("7", "FAILED", *ONE_HOUR).split("|")
    path.write_text(COLUMNS.replace("|State", "") + "\n" + "|".join(values[:3] + values[4:]) + "\n")
    assert NO_STATE in import_rows([path], "slurm", options=ReadOptions(timezone="UTC")).notes


def test_overlapping_exports_count_each_run_once(tmp_path: Path) -> None:
    running = row("7", "RUNNING", "10:00:00", "10:10:00", "-", "00:20:00")
    waiting = row("7", "PENDING", "10:00:00", "-", "-", "00:00:00", nodes="None assigned")
    done = row("7", "COMPLETED", *ONE_HOUR)
    trace = read(tmp_path, waiting, running, done, COLUMNS, done)
    assert trace.duration_s.tolist() == [3600.0]
    assert trace.counts[f"joined: {SAME_ROW_TWICE}"] == 3
    assert trace.counts["rejected: repeated header"] == 1


def test_components_of_a_heterogeneous_job_and_elements_of_an_array_are_jobs(
    tmp_path: Path,
) -> None:
    names = ("7+0", "7+1", "8_1", "8_2")
    trace = read(tmp_path, *(row(name, "COMPLETED", *ONE_HOUR) for name in names))
    assert sorted(trace.jobs.job_id) == sorted(names)
    assert trace.counts[f"adjusted: {COMPONENT}"] == 2


def test_a_job_that_never_got_a_node_never_started(tmp_path: Path) -> None:
    # Older versions print the end as the start.
    old = row("7", "CANCELLED by 5", "10:00:00", "11:00:00", "11:00:00", "00:00:00",
              nodes="None assigned")  # fmt: skip
    trace = read(tmp_path, old, row("8", "COMPLETED", *ONE_HOUR))
    assert trace.counts["rejected: never started"] == 1


def test_untyped_jobs_have_the_type_of_their_nodes_or_partition(tmp_path: Path) -> None:
    typed = {"n1": "a100", "n2": "a100", "n3": "v100"}
    rows = [
        row(str(i), "COMPLETED", *ONE_HOUR, nodes=node, gpus=f"gres/gpu:{kind.upper()}=2")
        for i, (node, kind) in enumerate(typed.items())
    ]
    rows.append(row("7", "COMPLETED", *ONE_HOUR, nodes="n[1-2]"))
    rows.append(row("8", "COMPLETED", *ONE_HOUR, nodes="n[2-3]"))
    rows.append(
        row("9", "COMPLETED", *ONE_HOUR, nodes="n4", gpus="gres/gpu:a100=1,gres/gpu:v100=1")
    )
    trace = read(tmp_path, *rows)
    types = dict(zip(trace.jobs.job_id, trace.jobs.gpu_type.texts(), strict=True))
    # Its partition has both types, so nothing tells that of job 8.
    assert types == {"0": "a100", "1": "a100", "2": "v100", "7": "a100", "8": "", "9": ""}
    assert trace.counts[f"adjusted: {SEVERAL_TYPES}"] == 1


BERLIN_BACK = "2024-10-27T"
"""Clocks go from 03:00 back to 02:00."""


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "ran_after_s"),
    [
        ("01:30:00", "02:30:00", "01:00:00", (0.0, 3600.0)),
        ("01:30:00", "02:30:00", "02:00:00", (0.0, 7200.0)),
        ("02:30:00", "03:30:00", "01:00:00", (7200.0, 10800.0)),
        ("02:30:00", "03:30:00", "02:00:00", (3600.0, 10800.0)),
        ("02:30:00", "02:10:00", "00:40:00", (3600.0, 6000.0)),
    ],
)
def test_elapsed_tells_the_pass_of_a_repeated_hour(
    tmp_path: Path, start: str, end: str, elapsed: str, ran_after_s: tuple[float, float]
) -> None:
    line = row("7", "COMPLETED", "01:30:00", start, end, elapsed, day=BERLIN_BACK)
    record = recorded(read(tmp_path, line, zone="Europe/Berlin"))
    assert (record.start_s[0], record.end_s[0]) == ran_after_s


def test_an_end_that_contradicts_elapsed_is_moved_and_counted(tmp_path: Path) -> None:
    trace = read(tmp_path, row("7", "COMPLETED", "10:00:00", "10:00:00", "12:00:00", "01:00:00"))
    assert recorded(trace).end_s.tolist() == [3600.0]
    assert trace.counts[f"adjusted: {ELAPSED_COUNTS}"] == 1


def test_a_local_time_that_never_was_is_counted(tmp_path: Path) -> None:
    line = row("7", "COMPLETED", "02:30:00", "04:00:00", "05:00:00", "01:00:00", day="2024-03-31T")
    counts = read(tmp_path, line, zone="Europe/Berlin").counts
    assert any("clocks skipped" in what for what in counts)
    assert not any("clocks skipped" in what for what in read(tmp_path, line).counts)


def test_without_a_zone_the_assumption_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"{COLUMNS}\n{row('7', 'COMPLETED', *ONE_HOUR)}\n")
    assert SLURM.read(path, ReadOptions()).notes == (NO_ZONE,)
    assert SLURM.read(path, ReadOptions(timezone="UTC")).notes == ()
    epoch = row("7", "COMPLETED", "1709546400T", "1709546400", "1709550000", "01:00:00")
    path.write_text(f"{COLUMNS}\n{epoch.replace('T|', '|').replace(DAY, '')}\n")
    assert SLURM.read(path, ReadOptions()).notes == ()


def test_the_priority_that_slurm_computed_is_no_wish_of_the_user(tmp_path: Path) -> None:
    rows = [row(str(7 + n), "COMPLETED", *ONE_HOUR) for n in range(3)]
    columns = COLUMNS.replace("|AllocTRES", "|AllocTRES|Priority")
    trace = read(tmp_path, *(f"{r}|{9000 - n}" for n, r in enumerate(rows)), columns=columns)
    assert trace.jobs.priority.tolist() == [0.0, 0.0, 0.0]


def test_a_missing_column_names_the_whole_list_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, "7|COMPLETED|x", columns="JobID|State|Start")
    assert str(error.value).count(",".join(FIELDS)) == 1
    assert "'Submit' and no 'Elapsed' and no 'AllocTRES'" in str(error.value)


def test_a_log_without_a_header_needs_the_list_or_names(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(row("7", "COMPLETED", *ONE_HOUR) + "\n")
    assert sniff(path) == "slurm"
    with pytest.raises(InputError, match="--columns"):
        import_trace([path])
    names = tuple(COLUMNS.split("|"))
    assert len(import_trace([path], options=ReadOptions(columns=names))) == 1
    with pytest.raises(InputError, match="11 values for the 10 names in --columns"):
        import_trace([path], options=ReadOptions(columns=names[:-1]))


def test_node_lists_are_written_out() -> None:
    assert readable_host_names("a1,gpu[01-03,07],r[1-2]n[8-9]") == (
        *("a1", "gpu01", "gpu02", "gpu03", "gpu07"),
        *("r1n8", "r1n9", "r2n8", "r2n9"),
    )
    assert (
        readable_host_names("None assigned")
        == readable_host_names("")
        == readable_host_names("n[1-")
        == ()
    )
    assert readable_host_names("n[x]") == readable_host_names("n[1-99999999]") == ()


HELD = COLUMNS.replace("|Submit|", "|Submit|Eligible|")


def held(job: str, eligible: str, *times: str, state: str = "COMPLETED") -> str:
    values = row(job, state, *times).split("|")
    values.insert(5, eligible if eligible == "Unknown" else DAY + eligible)
    return "|".join(values)


def test_a_job_arrives_when_it_became_eligible_and_its_submission_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    rows = (
        # A dependency held the first for three hours, nothing the second; the third is not told.
        held("7", "13:00:00", "10:00:00", "13:05:00", "14:05:00", "01:00:00"),
        held("8", "10:30:00", "10:30:00", "10:40:00", "11:40:00", "01:00:00"),
        held("9", "Unknown", "10:45:00", "11:00:00", "12:00:00", "01:00:00"),
    )
    path.write_text("\n".join((HELD, *rows)) + "\n")
    options = ReadOptions(timezone="UTC")
    imported = import_rows([path], "slurm", options=options, origin="first")
    trace, record = imported.trace, recorded(imported.trace)
    assert trace.jobs.job_id == ("8", "9", "7")
    assert trace.jobs.submit_s.tolist() == [1800.0, 2700.0, 3 * 3600.0]
    assert recorded_wait_s(record, trace.jobs.submit_s).tolist() == [600.0, 900.0, 300.0]
    assert any(
        "1 of 3 jobs were held after their submission for 3.0 h" in n for n in imported.notes
    )
    assert held_back(trace)[0].startswith("1 of 3 jobs were held")
    assert recorded_holdings(trace, None, "log")[0].gpu_s == 3 * 3600.0 * 2
    write_trace(trace, tmp_path / "held.csv")
    again = read_trace(tmp_path / "held.csv")
    assert to_frame(again)["submit_s"].to_list() == [1800.0, 2700.0, 0.0]
    assert again.jobs.submit_s.tolist() == trace.jobs.submit_s.tolist()
    assert again.counts == {"read": 3, "usable": 3}


def test_a_later_run_of_a_held_job_waits_from_its_requeue(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        held("7", "12:00:00", "10:00:00", "12:10:00", "13:10:00", "01:00:00", state="NODE_FAIL"),
        held("7", "13:12:00", "13:10:00", "13:30:00", "14:30:00", "01:00:00"),
        columns=HELD,
    )
    assert trace.jobs.submit_s.tolist() == [7200.0]
    assert recorded_wait_s(recorded(trace), trace.jobs.submit_s).tolist() == [1800.0]


def test_a_hold_before_a_later_run_is_no_waiting(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    rows = (
        held("7", "10:00:00", "10:00:00", "10:10:00", "11:10:00", "01:00:00", state="NODE_FAIL"),
        # Slurm keeps a requeued job back for 121 s by itself; `scontrol hold` did for an hour.
        held("7", "12:12:01", "11:10:00", "12:30:00", "13:30:00", "01:00:00"),
    )
    path.write_text("\n".join((HELD, *rows)) + "\n")
    imported = import_rows([path], "slurm", options=ReadOptions(timezone="UTC"), origin="first")
    trace, record = imported.trace, recorded(imported.trace)
    assert record.wait_s.tolist() == [600.0 + 80 * 60.0 - 3600.0]
    assert to_frame(trace)["runs"].to_list() == ["0+3600:NODE_FAIL 8400+3600~3600"]
    assert any("1 requeued jobs were held before a later run" in n for n in imported.notes)
    (service,) = recorded_jobs(trace, record)["service_gpu_s"].to_list()
    assert service == recorded_holdings(trace, None, "log")[0].gpu_s == 2 * 2 * 3600.0


def test_a_requeued_job_that_waited_for_several_partitions_is_of_the_one_it_ran_in(
    tmp_path: Path,
) -> None:
    rows = (
        row("7", "PREEMPTED", "10:00:00", "10:10:00", "11:10:00", "01:00:00"),
        row(
            "7", "CANCELLED by 1000", "11:10:00", "-", "12:00:00", "00:00:00", nodes="None assigned"
        ),
    )
    trace = read(tmp_path, rows[0], rows[1].replace("|gpu|", "|gpu,spot|"))
    assert trace.jobs.queue.texts() == ["gpu"]
    assert recorded(trace).wait_s.tolist() == [3600.0]


def test_a_slice_keeps_the_wait_of_a_job_that_was_submitted_before_it(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        held("8", "10:30:00", "10:30:00", "10:40:00", "11:40:00", "01:00:00"),
        held("7", "13:00:00", "10:00:00", "13:05:00", "14:05:00", "01:00:00"),
        columns=HELD,
    )
    late = rebased(trace.take(np.array([1])))
    record = recorded(late)
    assert late.jobs.submit_s.tolist() == [0.0] and record.start_s.tolist() == [300.0]
    assert recorded_wait_s(record, late.jobs.submit_s).tolist() == [300.0]
    assert to_frame(late)["submit_s"].to_list() == [0.0]


@pytest.mark.parametrize(
    ("gres", "nodes", "gpus", "kind"),
    [
        ("gpu:2080ti:4", 1, 4, "2080ti"),
        ("gpu:3090:2", 1, 2, "3090"),
        ("gpu:4", 2, 8, ""),
        ("gpu:A100", 2, 2, "a100"),
        ("gpu:a100:4,gpu:v100:2", 2, 12, ""),
        ("nvme:1,gpu:2(IDX:0,2)", 1, 2, ""),
    ],
)
def test_gpus_of_older_versions_are_counted_on_each_node(
    tmp_path: Path, gres: str, nodes: int, gpus: int, kind: str
) -> None:
    columns = COLUMNS.replace("|AllocTRES", "|AllocGRES|NNodes")
    trace = read(
        tmp_path, row("7", "COMPLETED", *ONE_HOUR, gpus=f"{gres}|{nodes}"), columns=columns
    )
    assert trace.jobs.gpus.tolist() == [gpus] and trace.jobs.gpu_type.texts() == [kind]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_recognised(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(f"{COLUMNS}\n{row('7', 'COMPLETED', *ONE_HOUR)}\n".encode(encoding))
    assert sniff(path) == "slurm"
    assert import_trace([path], options=ReadOptions(timezone="UTC")).jobs.job_id == ("7",)
