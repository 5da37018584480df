"""`dovetail simulate` as a user meets it: answers, folders whole or absent, one line of trouble."""

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from command_runner import Shell

from dovetail.record.result import JOB_COLUMNS

KEYS = (
    "policy",
    "jobs",
    "finished",
    "avg_jct_s",
    "median_jct_s",
    "p99_jct_s",
    "avg_time_to_start_s",
    "total_flow_s",
    "makespan_s",
    "gpu_utilization",
    "resource_utilization",
    "cluster_efficiency",
    "cluster_throughput",
    "avg_queue_length",
    "avg_blocking_index",
    "finish_time_fairness",
    "preemptions",
    "resizes",
    "deadline_met",
    "bound_s",
    "x_bound",
    "decision_p99_ms",
    "events",
    "wall_s",
)
PICTURES = ("jct", "jct-by-size", "load-over-time", "nodes-over-time", "gpu-seconds")


def test_it_says_in_words_and_tables_how_the_policy_did(shell: Shell, month: Path) -> None:
    said = shell.ok("simulate", month, "--policy", "srtf", "--cluster", "4x4")
    assert "srtf finishes all 250 jobs" in said.out
    assert "mean JCT" in said.out
    assert max(len(line) for line in said.out.splitlines()) <= 80
    assert said.err == ""


def test_powers_that_lie_idle_are_told(shell: Shell, month: Path) -> None:
    asked = ("simulate", month, "--policy", "lucid", "--no-bound")
    assert "so lucid could share none (--adopt" in " ".join(shell.ok(*asked).out.split())
    assert "could share none" not in " ".join(
        shell.ok(*asked, "--adopt", "shareable:1").out.split()
    )


def test_json_has_every_key_of_the_summary(shell: Shell, month: Path) -> None:
    said = shell.ok("simulate", month, "-p", "srtf", "--cluster", "4x4", "--json").json
    assert set(KEYS) <= set(said)
    assert said["jobs"] == said["finished"] == 250
    assert said["x_bound"] == pytest.approx(said["avg_jct_s"] / said["bound_s"])
    assert said["x_bound"] >= 1
    assert set(said["gpu_seconds"]) >= {"useful", "switching", "idle_waiting", "down"}


def test_the_folder_holds_all_that_was_promised(shell: Shell, month: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    shell.ok("simulate", month, "-p", "srtf", "--cluster", "4x4", "-o", out)
    assert {p.name for p in out.iterdir()} == {
        "summary.json",
        "jobs.csv",
        "events.jsonl",
        "report.html",
        "timeline.perfetto-trace.gz",
        "plots",
    }
    for picture in PICTURES:
        assert (out / "plots" / f"{picture}.png").read_bytes()[:4] == b"\x89PNG"
        assert "<svg" in (out / "plots" / f"{picture}.svg").read_text()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["manifest"]["switching"]["resume_s"] == 30.0
    jobs = pl.read_csv(out / "jobs.csv", infer_schema_length=None)
    assert jobs.columns == list(JOB_COLUMNS)
    assert jobs["jct_s"].mean() == pytest.approx(summary["avg_jct_s"])
    assert len(gzip.decompress((out / "timeline.perfetto-trace.gz").read_bytes())) > 10_000
    assert "srtf" in (out / "report.html").read_text()
    assert [p.name for p in out.parent.iterdir()] == ["run"]


def test_without_a_report_the_folder_holds_the_data_alone(
    shell: Shell, month: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shell.ok("simulate", month, "-p", "fifo", "--no-report", "--no-bound", "-o", out)
    assert {p.name for p in out.iterdir()} == {"summary.json", "jobs.csv", "events.jsonl"}
    assert json.loads((out / "summary.json").read_text()).get("x_bound") is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", "srft"], "did you mean 'srtf'?"),
        (["-p", "tiresias:treshold=3"], "did you mean 'thresholds'?"),
        (["-p", "tiresias:thresholds=many"], "wants a number"),
        (["-p", "srtf", "--clusterr", "4x4"], "--cluster"),
        (["-p", "srtf", "--cluster", "4y4"], "NODESxGPUS"),
        (["-p", "srtf", "--placement", "strct"], "did you mean 'strict'?"),
        (["-p", "srtf", "--switching", "restat:3"], "did you mean 'restart'?"),
        (["-p", "srtf", "--forecast", "knwon"], "did you mean 'known'?"),
        (["-p", "srtf", "--forecast", "noisy:x"], "as in noisy:0.5"),
        (["-p", "srtf", "--forecast", "unknown"], "needs to know: length"),
        (["-p", "srtf", "--belief", "exat"], "did you mean 'exact'?"),
        (["-p", "srtf", "--physics", "place"], "did you mean 'placed'?"),
        (["-p", "srtf", "--adopt", "elastc:1"], "did you mean 'elastic'?"),
        (["-p", "srtf", "--adopt", "elastic:2"], "between 0 and 1"),
        (["-p", "srtf", "--adopt", "elastic:1,elastic:0"], "'elastic' occurs twice"),
        (["-p", "srtf", "--switching", "restart:3,restart:4"], "contradicts another word"),
        (["-p", "srtf", "--switching", "none,restart:4"], "contradicts another word"),
        (["-p", "srtf", "--without", "preemt"], "did you mean 'preempt'?"),
        (["-p", "srtf", "--without", "preempt"], "powers withheld here: preempt"),
        (["-p", "srtf", "--cancelled", "wrk"], "did you mean 'work'?"),
        (["-p", "srtf", "--format", "canonicl"], "did you mean 'canonical'?"),
        (["-p", "srtf", "--coalesce-s", "nan"], "0 or more"),
        (["-p", "srtf", "--warm-up-s", "nan"], "0 or more"),
        (["-p", "srtf", "--drain-s", "-1"], "0 or more"),
        (["-p", "srtf", "--warm-up-s", "1e9"], "no job is left to count"),
        (["-p", "srtf", "--interference", "0.5"], "at least 1"),
        (["-p", "srtf", "--interference", "mesured"], "unknown 'mesured'"),
        (["-p", "srtf", "--placement", "strict,prefer"], "'strict' and 'prefer' exclude each"),
        (["-p", "srtf", "--switching", "prepared:x"], "wants a number of seconds"),
        (["-p", "srtf", "--switching", "per-start:x"], "a number of seconds, or 'profile'"),
        (["-p", "srtf", "--capacity", "nowhere"], "nowhere"),
        (["-p", "srtf", "--profiles", "nowhere"], "nowhere"),
        (["-p", "srtf", "--seed", "-1"], "--seed"),
        (["-p", "srtf", "--seed", "x"], "not a valid integer"),
        ([], "--policy"),
    ],
)
def test_what_cannot_be_is_told_in_one_line_with_the_way_out(
    words: list[str], expected: str, shell: Shell, month: Path
) -> None:
    assert expected in shell.refused("simulate", month, *words)


def test_a_trace_without_jobs_is_refused(shell: Shell, month: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text(month.read_text().splitlines()[0] + "\n")
    assert "contains no jobs" in shell.refused(
        "simulate", empty, "-p", "fifo", "-o", tmp_path / "x"
    )
    assert not (tmp_path / "x").exists()


def test_a_trace_that_is_not_there_is_refused(shell: Shell, tmp_path: Path) -> None:
    assert "no such file" in shell.refused("simulate", tmp_path / "gone.csv", "-p", "fifo")
    assert str(tmp_path) in shell.refused("simulate", tmp_path, "-p", "fifo")


def write_rows(path: Path, *rows: str, columns: str = "job_id,submit_s,gpus,duration_s") -> Path:
    path.write_text("\n".join((columns, *rows)) + "\n")
    return path


def test_a_job_larger_than_the_cluster_is_counted(shell: Shell, tmp_path: Path) -> None:
    trace = write_rows(tmp_path / "t.csv", "a,0,1,10", "b,0,64,10")
    words = ("simulate", trace, "-p", "fifo", "--cluster", "2x4", "--json")
    assert "1 for more GPUs than it has" in shell.refused(*words)
    assert "is not a share" in shell.refused(*words, "--allow-left-out", "many")
    said = shell.ok(*words, "--allow-left-out", "0.99").json
    assert (said["left_out"], said["jobs"], said["avg_jct_s"]) == (1, 1, 10.0)
    alone = write_rows(tmp_path / "big.csv", "b,0,64,10")
    words = shell.refused("simulate", alone, "-p", "fifo", "--cluster", "2x4")
    assert "larger --cluster" in words


def test_hostile_names_are_only_names(shell: Shell, tmp_path: Path) -> None:
    hostile = ["<script>alert(1)</script>", "=1+1", "../../etc", "[bold]x[/bold]", 'quo"te']
    rows = [f'"{h.replace(chr(34), chr(34) * 2)}",{i},1,10,"{h.replace(chr(34), "")}"'
            for i, h in enumerate(hostile)]  # fmt: skip
    columns = "job_id,submit_s,gpus,duration_s,user"
    trace = write_rows(tmp_path / "t.csv", *rows, columns=columns)
    out = tmp_path / "run"
    shell.ok("simulate", trace, "-p", "fifo", "--cluster", "1x1", "-o", out)
    assert "<script>alert" not in (out / "report.html").read_text()
    jobs = pl.read_csv(out / "jobs.csv", infer_schema_length=None)
    assert sorted(jobs["job_id"].to_list()) == sorted(hostile)
    assert shell("replay", out / "events.jsonl").code == 0


def test_an_existing_target_is_left_alone(shell: Shell, month: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "mine.txt").write_text("precious")
    assert "exists already" in shell.refused("simulate", month, "-p", "fifo", "-o", out)
    assert [p.name for p in out.iterdir()] == ["mine.txt"]


def test_a_parent_that_cannot_hold_it_is_told(shell: Shell, month: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    words = shell.refused("simulate", month, "-p", "fifo", "-o", file / "run")
    assert "cannot be written" in words


@pytest.mark.parametrize("where", ["report", "summary", "log"])
def test_a_disk_that_fills_leaves_nothing_behind(
    where: str, shell: Shell, month: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    targets = {
        "report": "dovetail.report.report.write_run_report",
        "summary": "dovetail.study.folder.write_tables",
        "log": "dovetail.record.log.LogWriter.close",
    }
    monkeypatch.setattr(targets[where], full)
    words = shell.refused("simulate", month, "-p", "fifo", "-o", tmp_path / "run")
    assert words.endswith("run: cannot be written: No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_half_way_leaves_nothing_behind(
    shell: Shell, month: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("dovetail.record.timeline.write_timeline", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        shell("simulate", month, "-p", "fifo", "-o", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def dovetail(*words: object, **more: object) -> "subprocess.CompletedProcess[str]":
    """Runs the real command in a process of its own."""
    command = [sys.executable, "-m", "dovetail", *(str(w) for w in words)]
    return subprocess.run(command, capture_output=True, text=True, **more)  # type: ignore[call-overload,no-any-return]


def test_a_real_limit_on_file_size_leaves_nothing_behind(month: Path, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    words = ("simulate", month, "-p", "fifo", "--no-bound", "-o", tmp_path / "run")
    said = dovetail(*words, preexec_fn=limit)
    assert said.returncode == 2
    assert said.stderr.endswith("run: cannot be written: File too large\n")
    assert list(tmp_path.iterdir()) == []


def test_the_log_is_the_same_to_the_byte_whatever_the_hash_seed(
    month: Path, tmp_path: Path
) -> None:
    logs = []
    for seed in ("0", "4242"):
        out = tmp_path / seed
        words = ("simulate", month, "-p", "gittins", "--assign-models", "--no-bound", "--no-report")
        env = {**os.environ, "PYTHONHASHSEED": seed}
        said = dovetail(*words, "--cluster", "4x4", "-o", out, env=env)
        assert said.returncode == 0, said.stderr
        logs.append((out / "events.jsonl").read_bytes())
    assert len(logs[0]) > 50_000
    assert logs[0] == logs[1]
