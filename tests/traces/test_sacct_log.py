"""A month of sacct as it really is, imported by the real command, against the generator's truth."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from dovetail.cli.main import cli
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy
from dovetail.core.trace import ENDS, TIMEOUT, Trace
from dovetail.study.options import Options
from dovetail.study.run import simulate
from dovetail.traces.canonical import read_trace
from dovetail.traces.importing import import_trace
from dovetail.traces.readers.format import ReadOptions
from dovetail.traces.readers.sacct_lines import FIELDS
from dovetail.traces.readers.sacct_requeues import RUN_OF_A_JOB
from sacct_log import FIELDS as HEADER
from sacct_log import ZONE, LoggedJob, log_lines, logged_jobs

MONDAY_S = datetime(2025, 10, 13, tzinfo=ZONE).timestamp()
"""Second 0 of the trace: the Monday 00:00, local time, before the first job."""


@dataclass(frozen=True)
class Import:
    """What the command printed, the trace that it wrote, and the jobs as they were."""

    output: str
    trace: Trace
    counts: dict[str, int]
    rejects: pl.DataFrame
    jobs: tuple[LoggedJob, ...]


def run(*words: str | Path) -> str:
    """Returns what a command prints."""
    result = CliRunner().invoke(cli, [str(w) for w in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Import:
    folder = tmp_path_factory.mktemp("sacct")
    jobs = logged_jobs()
    log, out, rejects = folder / "log.txt", folder / "month.csv", folder / "rejects.csv"
    log.write_text("\n".join(log_lines(jobs)) + "\n")
    words = ("trace", "import", log, "--timezone", "Europe/Berlin", "-o", out)
    printed = run(*words, "--rejects", rejects)
    counts = json.loads(run(*words, "--json"))["traces"][0]["counts"]
    return Import(printed, read_trace(out), counts, pl.read_csv(rejects), jobs)


def ran_s(job: LoggedJob) -> float:
    return sum(attempt.elapsed_s for attempt in job.attempts)


def usable(month: Import) -> list[LoggedJob]:
    """Returns the jobs that ran for a while, in the order of the trace."""
    ran = [job for job in month.jobs if ran_s(job) > 0]
    by_id = {job.job_id: job for job in ran}
    assert sorted(by_id) == sorted(month.trace.jobs.job_id)
    return [by_id[job_id] for job_id in month.trace.jobs.job_id]


def test_every_row_is_used_joined_or_rejected(month: Import) -> None:
    counts = month.counts
    told = sum(n for what, n in counts.items() if what.startswith(("rejected: ", "joined: ")))
    assert counts["read"] == counts["usable"] + told == len(log_lines(month.jobs)) - 1
    rejected = {k.removeprefix("rejected: "): n for k, n in counts.items() if k[:9] == "rejected:"}
    assert dict(month.rejects["reason"].value_counts().iter_rows()) == rejected
    # The steps of jobs do not bury what a reader looks for.
    kinds = month.rejects["kind"].to_list()
    assert kinds == sorted(kinds, key=("lost job", "never ran", "no GPU job", "step").index)
    assert set(kinds[-rejected["job step"] :]) == {"step"}
    never, instant = rejected["never started"], rejected["zero duration"]
    rows = sum(max(1, len(job.attempts)) for job in month.jobs)
    assert rows == counts["usable"] + counts[f"joined: {RUN_OF_A_JOB}"] + never + instant
    of_steps = sum(n for what, n in rejected.items() if "job step" in what)
    damaged = counts["read"] - rows - of_steps
    assert 0 < damaged <= 30 and rejected["repeated header"] == 6
    assert never == sum(not job.attempts for job in month.jobs)
    assert instant == sum(bool(job.attempts) and ran_s(job) == 0 for job in month.jobs)
    # GPU jobs that waited in vain are no rows of steps or headers.
    assert kinds.count("never ran") == never + instant > 30
    assert (
        f"\n{never + instant} GPU jobs were submitted and never ran ({never} never started, "
        f"{instant} zero duration), after 47.0 h of waiting" in month.output
    )


def test_sizes_types_and_run_times_are_those_of_the_jobs(month: Import) -> None:
    trace, jobs = month.trace, usable(month)
    assert trace.jobs.gpus.tolist() == [job.gpus for job in jobs]
    assert trace.jobs.gpu_type.texts() == [job.gpu_type for job in jobs]
    assert trace.duration_s.tolist() == [ran_s(job) for job in jobs]
    assert trace.jobs.submit_s.tolist() == [job.submit_s - MONDAY_S for job in jobs]


def test_starts_ends_waits_and_restarts_are_as_they_were(month: Import) -> None:
    recorded, jobs = month.trace.recorded, usable(month)
    assert recorded is not None and recorded.eligible_s is not None
    assert recorded.start_s.tolist() == [job.attempts[0].start_s - MONDAY_S for job in jobs]
    assert recorded.end_s.tolist() == [job.end_s - MONDAY_S for job in jobs]
    assert recorded.restarts.tolist() == [job.restarts for job in jobs]
    assert recorded.eligible_s.tolist() == month.trace.jobs.submit_s.tolist()
    held = [sum(a.end_s - a.start_s for a in job.attempts) for job in jobs]
    waited = [job.end_s - job.submit_s - h for job, h in zip(jobs, held, strict=True)]
    assert recorded.wait_s.tolist() == waited
    nodes = [job.attempts[-1].nodes for job in jobs]
    counted = [text.count(",") + 1 for text in recorded.nodes.texts()]
    assert counted == [len(n) for n in nodes]


def test_a_replay_ends_those_jobs_at_their_limit_that_the_log_does(month: Import) -> None:
    cluster = Cluster.parse("9x4:a100+4x4:v100")
    replayed = simulate(month.trace, parse_policy("backfill"), Options(cluster))
    ended = (replayed.jobs["end"] == ENDS[TIMEOUT]).to_numpy()
    assert ended.sum() > 100
    assert ended.tolist() == (month.trace.end == TIMEOUT).tolist()


def test_some_jobs_ran_over_the_change_of_clocks_and_some_were_suspended(month: Import) -> None:
    change_s = datetime(2025, 10, 26, 3, tzinfo=ZONE).timestamp()
    over = [j for j in month.jobs if any(a.start_s < change_s < a.end_s for a in j.attempts)]
    assert len(over) > 5 and sum(job.suspended_s > 0 for job in month.jobs) > 10


def test_tenants_are_kept(month: Import) -> None:
    table, jobs = month.trace.jobs, usable(month)
    assert table.user.texts() == [job.user for job in jobs]
    assert table.account.texts() == [job.account for job in jobs]
    assert table.qos.texts() == [job.qos for job in jobs]
    assert table.reservation.texts() == [job.reservation for job in jobs]
    limited = np.isfinite(table.time_limit_s)
    assert limited.tolist() == [job.limit[0].isdecimal() for job in jobs]


def test_the_log_has_the_columns_that_we_request() -> None:
    assert tuple(HEADER.split("|")) == FIELDS


def as_printed(text: str, kind: str) -> bytes:
    """Returns a log as people save it."""
    rows = text.splitlines()
    if kind == "commas":
        return text.replace("|", ",").encode()
    if kind == "tabs":
        return text.replace("|", "\t").encode()
    if kind == "sacct -p":
        return "".join(f"{row}|\n" for row in rows).encode()
    if kind == "CRLF":
        return "".join(f"{row}\r\n" for row in rows).encode()
    if kind == "a prompt and a warning":
        above = "ann@login:~$ sacct -a -P -o JobID,State\nsacct: warning: slow database\n\n"
        return (above + text).encode()
    if kind == "sacct -n":
        return text.partition("\n")[2].encode()
    return text.encode({"UTF-16": "utf-16", "UTF-8 with a mark": "utf-8-sig"}[kind])


KINDS = (
    *("commas", "tabs", "sacct -p", "CRLF", "a prompt and a warning", "sacct -n", "UTF-16"),
    "UTF-8 with a mark",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_recognised_however_it_was_saved(tmp_path: Path, kind: str) -> None:
    jobs = logged_jobs(60)
    text = "\n".join(line for line in log_lines(jobs) if line.count("|") == HEADER.count("|"))
    plain, saved = tmp_path / "plain.txt", tmp_path / "saved.txt"
    plain.write_text(text + "\n")
    saved.write_bytes(as_printed(text + "\n", kind))
    options = ReadOptions(timezone="Europe/Berlin")
    expected, found = (import_trace([p], options=options) for p in (plain, saved))
    assert found.jobs.job_id == expected.jobs.job_id and len(found) > 50
    assert found.duration_s.tolist() == expected.duration_s.tolist()
    assert found.jobs.gpus.tolist() == expected.jobs.gpus.tolist()
    assert found.jobs.gpu_type.texts() == expected.jobs.gpu_type.texts()


def test_the_three_commands_of_the_readme_give_the_right_answer(tmp_path: Path) -> None:
    jobs = logged_jobs(800)
    log, out = tmp_path / "log.txt", tmp_path / "month.csv"
    log.write_text("\n".join(log_lines(jobs)) + "\n")
    first = run("trace", "import", log, "--timezone", "Europe/Berlin", "-o", out)
    assert first.startswith(f"{out}: ")
    fits = "--cluster 9x4:a100+4x4:v100"
    described = run("trace", "describe", out)
    assert fits in described
    words = ("compare", out, "--policies", "backfill,sjf", "--processes", "1")
    said = json.loads(run(*words, *fits.split(), "--json"))
    assert {result["left_out"] for result in said["runs"].values()} == {0}
    assert not any("left out" in note or "ignored" in note for note in said["notes"])
    # Slurm wrote the log, so its scheduler stands for the site, with defaults that are said.
    assert said["site"].startswith("slurm") and "backfill" in said["runs"]
    assert said["cautions"][0].startswith("No slurm.conf was given")
    assert "dovetail cluster slurm.conf" in said["cautions"][0]
    best = said["contrasts"][0]["policy"].partition(":")[0]
    assert said["notes"][0].startswith(f"{best} under Slurm: ")
    assert best == "sjf"
    assert "in this log a third of the jobs ran below " in said["notes"][0]
    assert "--policy sjf --forecast predicted --history LOG --act order" in said["notes"][0]
    with pytest.raises(InputError, match="for v100 GPUs, which it does not have") as refused:
        run(*words, "--cluster", "9x4:a100")
    assert fits in str(refused.value)
    untyped = " ".join(run(*words, "--cluster", "13x4").split())
    assert untyped.startswith("The cluster names no GPU type") and fits in untyped


def test_an_imported_log_keeps_its_dates_and_its_time_zone(tmp_path: Path) -> None:
    log, out, busy = (tmp_path / name for name in ("log.txt", "month.csv", "busy.csv"))
    log.write_text("\n".join(log_lines(logged_jobs(400))) + "\n")
    run("trace", "import", log, "--timezone", "Europe/Berlin", "-o", out)
    trace = read_trace(out)
    assert trace.imported is not None
    assert (trace.imported.epoch_s, trace.imported.zone) == (MONDAY_S, "Europe/Berlin")
    charged = json.loads(run("chargeback", out, "--json"))
    assert "calendar months in time zone Europe/Berlin" in charged["source"]
    assert {row["month"] for row in charged["charges"]} == {"2025-10", "2025-11"}
    assert "GPU-hours more than they ran, as when suspended" in charged["source"]
    run("trace", "slice", out, "--busiest-days", "3", "-o", busy)
    part = read_trace(busy)
    assert part.imported is not None and part.imported.epoch_s is not None
    first = trace.jobs.job_id.index(part.jobs.job_id[0])
    moment_s = trace.jobs.submit_s[first] + MONDAY_S
    assert part.imported.epoch_s + part.jobs.submit_s[0] == pytest.approx(moment_s)


def test_without_a_time_zone_the_first_line_names_the_assumption(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("\n".join(log_lines(logged_jobs(400))) + "\n")
    printed = run("trace", "import", log, "-o", tmp_path / "month.csv")
    assert printed.startswith("note: no time zone was given, so the times of the log are read as")
    assert "--timezone Europe/Berlin" in printed.splitlines()[0]
    assert "no time zone was given" in run("trace", "describe", log).splitlines()[0]
