"""`dovetail compare` and `dovetail demo`: the ranked table, the folder, policies from files."""

import json
from pathlib import Path

import polars as pl
import pytest
from command_runner import Shell

from dovetail.study.option_texts import split_policies
from sacct_log import log_lines, logged_jobs

PLOTS = {
    "mean-jct",
    "jct",
    "jct-by-size",
    "queue-lengths",
    "gpu-seconds",
    "change-by-size",
    "change-by-user",
}
OWN_POLICY = '''"""Last come, first served, by a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.policy import Decision, register
from dovetail.core.order import Order
from dovetail.core.view import View


@register("lifo-of-mine")
@dataclass(frozen=True)
class Lifo:
    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: [-float(j) for j in jobs])
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        draft = view.plan.draft()
        for job in list(view.waiting):
            spans = view.placing.find(draft.occupancy, view.shape(job))
            if spans is not None:
                draft.place(job, spans)
        return Decision(draft)
'''


def test_it_ranks_in_eighty_columns(shell: Shell, month: Path) -> None:
    words = ("-p", "fifo,srtf", "--cluster", "4x4", "--processes", "1", "--forecast", "known")
    said = shell.ok("compare", month, *words)
    lines = said.out.splitlines()
    assert max(map(len, lines)) <= 80
    ranked = [line.split()[0] for line in lines if line.startswith(("srtf ", "fifo "))]
    assert ranked[1:3] == ["srtf", "fifo"]  # the sentence above begins with the best, too
    assert "sooner than fifo" in " ".join(lines)
    assert "95 % intervals: bootstrap over 10 blocks" in " ".join(lines)


def test_json_ranks_and_bounds(shell: Shell, month: Path) -> None:
    words = ("compare", month, "-p", "fifo,srtf", "--cluster", "4x4", "--processes", "1")
    said = shell.ok(*words, "--json").json
    srtf, fifo = "srtf:bypass=skip", "fifo:bypass=strict"
    assert [p["policy"] for p in said["policies"]] == [srtf, fifo, f"{srtf}, known"]
    assert [p["forecast"] for p in said["policies"]] == ["predicted", "unknown", "known"]
    assert [p["kind"] for p in said["policies"]] == ["policy", "policy", "if known"]
    assert said["baseline"] == fifo
    assert all(p["x_bound"] >= 1 for p in said["policies"])
    assert set(said["runs"]) == {srtf, fifo, f"{srtf}, known"}


def test_policies_get_what_a_site_has_and_known_lengths_are_rows_of_their_own(
    shell: Shell, month: Path
) -> None:
    words = ("-p", "fifo,backfill,srtf", "--cluster", "4x4", "--processes", "1")
    said = " ".join(shell.ok("compare", month, *words).out.split())
    assert said.startswith("No job has a time limit, so backfill cannot plan by limits as Slurm")
    assert "Of what could be deployed today" in said
    assert "reemption (srtf) would" in said
    assert "known lengths (backfill) would" in said
    assert "backfill, known" in said
    assert "fifo, known" not in said


def test_the_folder_holds_report_plots_and_each_policy(
    shell: Shell, month: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    words = ("compare", month, "-p", "fifo tiresias:thresholds=3250/7200", "--cluster", "4x4")
    shell.ok(*words, "--processes", "1", "-o", out)
    names = {p.name for p in out.iterdir()}
    assert names == {
        "comparison.json",
        "comparison.csv",
        "report.html",
        "plots",
        "01-fifo",
        "02-tiresias",
    }
    assert {p.stem for p in (out / "plots").iterdir()} == PLOTS
    ranked = pl.read_csv(out / "comparison.csv")
    said = json.loads((out / "comparison.json").read_text())
    assert ranked["policy"].to_list() == [p["policy"] for p in said["policies"]]
    jobs = pl.read_csv(out / "01-fifo" / "jobs.csv", infer_schema_length=None)
    (fifo,) = [p for p in said["policies"] if p["policy"].startswith("fifo")]
    assert jobs["jct_s"].mean() == pytest.approx(fifo["avg_jct_s"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", "fifo,srft"], "did you mean 'srtf'?"),
        (["-p", ""], "specify at least one policy"),
        (["-p", "fifo,fifo"], "named twice"),
        (["-p", "fifo,srtf", "--baseline", "sjf"], "not one of the compared policies"),
        (["-p", "fifo", "--windows", "9"], "would overlap"),
        (["-p", "fifo", "--seeds", "9"], "nothing in this study is drawn by seed"),
        (["-p", "fifo", "--processes", "-1"], "--processes"),
        (["-p", "fifo", "--window-days", "0", "--windows", "2"], "must be positive"),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_line(
    words: list[str], expected: str, shell: Shell, month: Path, tmp_path: Path
) -> None:
    assert expected in shell.refused("compare", month, *words, "-o", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_policy_in_a_file_of_the_users_own_is_compared_like_any_other(
    processes: str, shell: Shell, month: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(OWN_POLICY)
    words = ("compare", month, "-p", f"fifo {mine}", "--cluster", "4x4", "--json")
    said = shell.ok(*words, "--processes", processes).json
    assert {p["policy"] for p in said["policies"]} == {"fifo:bypass=strict", "lifo-of-mine"}


def test_a_policy_file_with_an_error_is_told_with_its_line(
    shell: Shell, month: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def broken(:\n")
    assert "mine.py, line 1: syntax error" in shell.refused("compare", month, "-p", mine)
    assert "no such policy file" in shell.refused("compare", month, "-p", tmp_path / "gone.py")


def test_models_are_drawn_anew_for_each_seed(shell: Shell, month: Path) -> None:
    words = ("compare", month, "-p", "max-min", "--adopt", "elastic:1", "--assign-models")
    said = shell.ok(*words, "--seeds", "4", "--cluster", "4x4", "--processes", "1", "--json").json
    assert "4 seeds on the same jobs" in said["notes"][0]
    (row,) = said["policies"]
    assert row["low"] < row["avg_jct_s"] < row["high"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fifo,srtf", ["fifo", "srtf"]),
        ("fifo srtf", ["fifo", "srtf"]),
        (" fifo , srtf ", ["fifo", "srtf"]),
        ("fifo", ["fifo"]),
        ("", []),
        ("a:x=1,y=2,b", ["a:x=1,y=2", "b"]),
        ("a:x=1,b:y=2", ["a:x=1", "b:y=2"]),
        ("a:x=1,y=2 b:z=3,w=4", ["a:x=1,y=2", "b:z=3,w=4"]),
        ("a:x=1,inner=b:z=3", ["a:x=1,inner=b:z=3"]),
    ],
)
def test_a_list_of_policies_is_split_where_a_reader_would(text: str, expected: list[str]) -> None:
    assert split_policies(text) == expected


def test_the_demo_writes_a_report_and_says_where(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    said = shell.ok(
        "demo", "--jobs", 300, "--days", 2, "--cluster", "4x4", "--policies", "fifo srtf",
        "--processes", 1, "-o", out,
    )  # fmt: skip
    assert (out / "report.html").is_file()
    assert str(out / "report.html") in said.out
    again = said.out.split("To repeat: dovetail ")[1].strip()
    assert again.startswith(f"compare {out / 'trace.csv'}")
    repeated = shell.ok(
        "compare", out / "trace.csv", "--policies", "fifo srtf", "--cluster", "4x4", "--seed", 1,
        "--processes", 1, "--json",
    ).json  # fmt: skip
    assert repeated["policies"] == json.loads((out / "comparison.json").read_text())["policies"]


@pytest.mark.parametrize(
    "words", [["--jobs", 0], ["--days", -1], ["--load", 0], ["--cluster", "x"], ["--seed", -1]]
)
def test_a_demo_that_cannot_be_is_refused(words: list[object], shell: Shell) -> None:
    shell.refused("demo", *words)


def test_a_log_with_a_record_shows_it_first_and_the_error_of_the_replay(
    shell: Shell, tmp_path: Path
) -> None:
    log = tmp_path / "log.csv"
    rows = ["job_id,submit_s,gpus,duration_s,start_s,end_s,user,account,queue"]
    rows += [
        f"{i},{i * 60},{1 + i % 2},600,{i * 60 + i % 7 * 90},{i * 60 + i % 7 * 90 + 600},"
        f"u{i % 3},a{i % 2},q{i % 2}"
        for i in range(40)
    ]
    log.write_text("\n".join(rows) + "\n")
    words = ("compare", log, "-p", "fifo,backfill", "--cluster", "4x4", "--processes", "1")
    text = shell.ok(*words).out
    assert max(map(len, text.splitlines())) <= 80
    (table,) = [part for part in text.split("\n\n") if part.startswith("policy  ")][:1]
    assert table.splitlines()[2].startswith("recorded")
    assert "The replay of backfill against the log: JCT mean" in text
    out = tmp_path / "out"
    shell.ok(*words, "--site", "fifo", "-o", out)
    assert (out / "01-recorded" / "jobs.csv").is_file()
    assert "Recorded and replayed" in (out / "report.html").read_text()
    said = json.loads((out / "comparison.json").read_text())
    assert said["policies"][0]["kind"] == "recorded"
    assert said["site"] == "fifo:bypass=strict"
    assert said["replay_error"]["jobs"] == 40
    assert {d["number"] for d in said["replay_error"]["numbers"]} >= {"avg_jct_s", "p99_wait_s"}
    splits = said["runs"]["recorded"]["splits"]
    assert [g["group"] for g in splits["account"]] == ["a0", "a1"]
    refused = shell.refused(*words, "--site", "sjf", "-o", tmp_path / "no")
    assert "--site" in refused and "not one of the compared policies" in refused


TYPED = """\
job_id,submit_s,gpus,duration_s,gpu_type,start_s,end_s,wait_s,nodes
1,0,2,3600,a100,0,3600,0,a1
2,60,2,3600,a100,3600,7200,3540,a1
3,90,1,3600,v100,90,3690,0,v1
"""


def test_without_a_cluster_the_runs_are_on_the_one_that_fits_the_log(
    shell: Shell, tmp_path: Path
) -> None:
    log = tmp_path / "log.csv"
    log.write_text(TYPED)
    note = "--cluster was given: the runs are on 1x2:a100+1x1:v100, which fits the log"
    compared = shell.ok("compare", log, "-p", "fifo,backfill", "--processes", "1", "--json").json
    assert note in compared["cautions"][0]
    run = compared["runs"]["backfill"]
    assert run["avg_wait_s"] == pytest.approx(compared["runs"]["recorded"]["avg_wait_s"])
    one = " ".join(shell.ok("simulate", log, "-p", "fifo").out.split())
    assert one.startswith(f"No {note}.")
    bound = shell.ok("bound", log).out
    assert bound.startswith(f"note: no {note}")
    asked = shell.ok("whatif", log, "--nodes", "+1:v100", "--processes", "1").out
    assert asked.startswith(f"note: no {note}")


def test_where_a_trace_tells_no_cluster_the_assumed_one_is_said(shell: Shell, month: Path) -> None:
    text = " ".join(shell.ok("compare", month, "-p", "fifo", "--processes", "1").out.split())
    assert text.startswith("No --cluster was given and the trace does not tell one: the runs are")


def test_one_queue_over_two_gpu_types_says_first_that_one_blocks_the_other(
    shell: Shell, tmp_path: Path
) -> None:
    log = tmp_path / "log.csv"
    log.write_text(TYPED)
    words = ("compare", log, "--cluster", "1x2:a100+1x1:v100", "--processes", "1", "--json")
    said = shell.ok(*words, "-p", "fifo,backfill").json
    caution = next(c for c in said["cautions"] if c.startswith("One queue for a100 and v100: "))
    assert "under fifo the first job that finds no room stops all behind it" in caution
    # The job of a V100 behind one that waits for an A100 waits with it, on an idle GPU.
    assert said["runs"]["fifo:bypass=strict"]["avg_wait_s"] > 2000
    skipping = shell.ok(*words, "-p", "fifo:bypass=skip,backfill").json
    assert not any("One queue" in caution for caution in skipping["cautions"])
    one = shell.ok("simulate", log, "-p", "fifo", "--cluster", "1x2:a100+1x1:v100").out
    assert one.startswith("One queue for a100 and v100: ")


def test_why_a_policy_wins_is_one_paragraph_and_one_table(shell: Shell, month: Path) -> None:
    words = ("compare", month, "-p", "fifo,srtf", "--cluster", "4x4", "--processes", "1")
    said = shell.ok(*words, "--why", "srtf")
    assert "srtf: Shortest remaining time first" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    reason = shell.ok(*words, "--why", "srtf", "--json").json["why"]
    assert sum(row["jobs"] for row in reason["rows"]) == 250
    assert "is none of the policies" in shell.refused(*words, "--why", "fifo")
    assert "why" not in shell.ok(*words, "--json").json


def test_an_empty_list_of_policies_is_refused_though_the_site_has_one(
    shell: Shell, tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    log.write_text("\n".join(log_lines(logged_jobs(60))) + "\n")
    said = shell("compare", log, "--policies", "", "--allow-left-out", "100%")
    assert said.code == 2 and "specify at least one policy" in said.err


def test_waits_by_size_have_median_and_90_percent(shell: Shell, month: Path) -> None:
    words = ("compare", month, "-p", "fifo,srtf", "--cluster", "4x4", "--processes", "1")
    lines = shell.ok(*words, "--by", "size").out.partition("Waits by size")[2].splitlines()
    assert lines[1].split() == ["size", "policy", "jobs", "mean", "wait", "median", "90", "%"]
    splits = shell.ok(*words, "--json").json["runs"]["fifo:bypass=strict"]["splits"]["size_class"]
    assert len(splits) > 1 and sum(" fifo " in line for line in lines) == len(splits)
    assert "one of queue, account" in shell.refused(*words, "--by", "hour")
    assert "name no account" in shell.refused(*words, "--by", "account")
    assert "--json has" in shell.refused(*words, "--by", "size", "--json")
