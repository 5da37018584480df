"""`dovetail whatif` and `dovetail chargeback`: first lines, tables, files, refusals."""

import json
from pathlib import Path

import polars as pl
import pytest
from command_runner import Shell

from dovetail.cli.whatif_view import best_sentence
from dovetail.study.chargeback import CHARGE_COLUMNS
from dovetail.study.target import TARGET_COLUMNS
from dovetail.study.whatif import WHATIF_COLUMNS

ONE = ("--processes", "1")
RECORDED = """job_id,submit_s,gpus,duration_s,start_s,end_s,wait_s,account,gpu_type
1,1709251200,2,7200,1709251200,1709258400,0,vision,a100
2,1709251200,1,3600,1709258400,1709262000,7200,text,a100
"""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the file of two jobs of 2024-03-01 whose log has starts and accounts."""
    file = tmp_path_factory.mktemp("traces") / "recorded.csv"
    file.write_text(RECORDED)
    return file


def test_the_first_line_says_what_decides_and_rows_fit_eighty_columns(
    shell: Shell, month: Path
) -> None:
    said = shell.ok("whatif", month, "--cluster", "4x4:a100", "--nodes", "+2,+1", "--time-limit",
                    "2h", "-p", "fifo,srtf", "--price", "a100=2.10", *ONE)  # fmt: skip
    lines = said.out.splitlines()
    assert lines[0].startswith("Users do not react: the same 250 jobs are submitted")
    assert max(map(len, lines)) <= 80
    first = [line.partition("  ")[0].strip() for line in lines]
    rows = ["as is", "+2 nodes", "+1 node", "limit 2h", "srtf"]
    assert [word for word in first if word in rows] == rows * 2  # times, then money
    assert any("as is" in line and "24,192" in line for line in lines)  # 16 x 2.10 x 720
    assert "would kill" in said.out


def test_json_has_the_rows_and_notes(shell: Shell, month: Path) -> None:
    words = ("whatif", month, "--cluster", "4x4", "--nodes", "+1", "-p", "fifo,sjf", *ONE)
    said = shell.ok(*words, "--json").json
    assert [row["change"] for row in said["rows"]] == ["as is", "+1 node", "sjf"]
    assert set(said["rows"][0]) == set(WHATIF_COLUMNS)
    assert said["notes"][0].startswith("Users do not react")
    crossed = shell.ok(*words, "--cross", "--json").json
    assert [row["change"] for row in crossed["rows"]] == ["as is", "sjf", "+1 node", "+1 node, sjf"]


def test_waits_by_size_are_printed_and_kept(shell: Shell, month: Path, tmp_path: Path) -> None:
    words = ("whatif", month, "--cluster", "4x4", "--nodes", "+1", "--by", "size", *ONE)
    text = shell.ok(*words, "-o", tmp_path / "plan").out
    assert "Mean wait by size" in text
    said = shell.ok(*words, "--json").json["by"]
    assert said["label"] == "size"
    assert pl.read_csv(tmp_path / "plan" / "whatif-by.csv")["name"].to_list() == [
        row["name"] for row in said["rows"]
    ]
    assert "one of queue, account" in shell.refused("whatif", month, "--nodes", "+1", "--by", "x")


def test_the_folder_has_the_table_of_the_screen(shell: Shell, month: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan"
    said = shell.ok(
        "whatif", month, "--cluster", "4x4", "--nodes", "+1", "-o", out, *ONE, "--json"
    ).json
    table = pl.read_csv(out / "whatif.csv")
    assert table["change"].to_list() == ["as is", "+1 node"]
    assert json.loads((out / "whatif.json").read_text()) == said


def test_a_target_is_answered_with_its_neighbours(
    shell: Shell, month: Path, tmp_path: Path
) -> None:
    out = tmp_path / "target"
    words = ("whatif", month, "--cluster", "4x4", "--target", "90% of 1-GPU jobs start within 1 h")
    text = shell.ok(*words, *ONE, "--price", "2", "-o", out).out
    assert text.startswith("Users do not react")
    assert "<- answer" in text
    said = shell.ok(*words, *ONE, "--json").json
    (answer,) = said["answers"]
    shares = {row["nodes"]: row["share"] for row in answer["tried"]}
    assert shares[answer["nodes"]] >= 0.9 > shares[answer["nodes"] - 1]
    assert set(answer["tried"][0]) == set(TARGET_COLUMNS)
    assert pl.read_csv(out / "target.csv").columns == list(TARGET_COLUMNS)


def test_a_forecast_passes_through(shell: Shell, month: Path) -> None:
    words = ("whatif", month, "--cluster", "4x4", "--nodes", "+1", "-p", "backfill", *ONE, "--json")
    known, predicted = (
        shell.ok(*words, "--forecast", forecast).json for forecast in ("known", "predicted")
    )
    assert known["notes"][0].endswith("job lengths: known (the true ones).")
    assert predicted["notes"][0].endswith("job lengths: predicted from earlier jobs.")
    assert known["rows"][0]["avg_jct_s"] != predicted["rows"][0]["avg_jct_s"]


def test_what_the_user_left_to_us_is_named_first(shell: Shell, month: Path) -> None:
    said = shell.ok("whatif", month, "--cluster", "4x4", "--nodes", "+1", *ONE, "--json").json
    assert said["notes"][0].endswith(" By default: --policies backfill, --forecast available.")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "there is nothing to compare"),
        (["--nodes", "+x"], "is not a number of nodes"),
        (["--nodes", "-9"], "takes more nodes than"),
        (["--time-limit", "24"], "lacks a unit"),
        (["--quota", "nobody=4"], "no job is in queue 'nobody'"),
        (["-p", "fifo,srft"], "did you mean 'srtf'?"),
        (["--nodes", "+1", "--price", "cheap"], "is not a price"),
        (["--nodes", "+1", "--type", "a100"], "only --target uses it"),
        (["--nodes", "+1", "--target", "90% of jobs start within 1 h"], "leave one out"),
        (["--target", "soon"], "is not a target"),
        (["--target", "90% of jobs start within 1 h", "--type", "h100"], "no group 'h100'"),
        (["--nodes", "+1", "--longer-jobs", "drop"], "--longer-jobs"),
        (["--nodes", "+1,+2", "--cross"], "there is one kind of change"),
        (["--demand", "20"], "is not another demand"),
        (["--types-for", "a100=h100"], "no row has h100 GPUs"),
    ],
)
def test_what_cannot_be_asked_is_told_in_one_line(
    words: list[str], expected: str, shell: Shell, month: Path, tmp_path: Path
) -> None:
    said = shell.refused("whatif", month, "--cluster", "4x4", *words, "-o", tmp_path / "out", *ONE)
    assert expected in said
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_charged_by_the_30_days_or_by_the_calendar(
    shell: Shell, month: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shell.ok("simulate", month, "-p", "sjf", "--cluster", "4x4:a100", "-o", run, "--no-report",
             "--no-bound")  # fmt: skip
    held = json.loads((run / "summary.json").read_text())["gpu_seconds"]
    said = shell.ok("chargeback", run, "--by", "user", "--price", "2", "--json").json
    charges = pl.DataFrame(said["charges"], schema=dict(CHARGE_COLUMNS))
    used_h = sum(held[kind] for kind in ("useful", "slowdown", "switching")) / 3600
    assert charges["gpu_hours"].sum() == pytest.approx(used_h)
    idle_h = (held["idle_waiting"] + held["idle_empty"]) / 3600
    assert charges["idle_gpu_hours"].sum() == pytest.approx(idle_h)
    assert charges["cost"].sum() == pytest.approx(2 * (used_h + idle_h))
    assert "30 days" in said["source"]
    text = shell.ok("chargeback", run, "--start", "2024-03-04", "--timezone", "Europe/Berlin").out
    assert "calendar months in time zone Europe/Berlin" in " ".join(text.split())
    assert "2024-03" in text
    assert "no prices" in text
    assert "a run has no other format" in shell.refused("chargeback", run, "--format", "slurm")
    again = shell.ok("chargeback", run / "events.jsonl", "--by", "user", "--price", "2", "--json")
    assert again.json == said


def test_a_log_with_starts_is_charged_as_it_was(
    shell: Shell, recorded: Path, tmp_path: Path
) -> None:
    out = tmp_path / "march.csv"
    said = shell.ok("chargeback", recorded, "--price", "a100=2", "--cluster", "1x2:a100", "-o", out)
    table = pl.read_csv(out)
    assert table.columns == list(CHARGE_COLUMNS)
    assert table.select("month", "who", "gpu_hours", "cost").rows() == [
        ("2024-03", "text", 1.0, 2.0),
        ("2024-03", "vision", 4.0, 8.0),
        ("2024-03", "(idle)", 0.0, 2.0),
    ]
    assert said.out.startswith("GPUs held by 2 of 2 jobs, as the log recorded; by account;")


def test_without_a_cluster_the_idle_gpus_are_those_of_the_one_that_fits_the_log(
    shell: Shell, recorded: Path
) -> None:
    said = shell.ok("chargeback", recorded, "--json").json
    assert "idle GPUs are those of 1x2:a100, which fits the log (no --cluster)" in said["source"]
    assert [row["who"] for row in said["charges"]] == ["text", "vision", "(idle)"]


def test_what_cannot_be_charged_is_told_in_one_line(
    shell: Shell, month: Path, recorded: Path, tmp_path: Path
) -> None:
    assert "does not record when its jobs started" in shell.refused("chargeback", month)
    assert "has no events.jsonl" in shell.refused("chargeback", tmp_path)
    assert "has no GPU type 'h100'" in shell.refused("chargeback", recorded, "--price", "h100=1")
    assert "dates already" in shell.refused("chargeback", recorded, "--start", "2024-03-04")
    assert "no job names its queue" in shell.refused("chargeback", recorded, "--by", "queue")
    assert "give the cluster that ran the log" in shell.refused(
        "chargeback", recorded, "--cluster", "1x1:a100"
    )


def test_a_change_that_changes_nothing_is_refused(shell: Shell, month: Path) -> None:
    words = ("whatif", month, "--cluster", "4x4", *ONE)
    assert "'+0 nodes' changes nothing" in shell.refused(*words, "--nodes", "+0")
    queue = shell.refused(*words, "--quota", "nobody=none")
    assert "'quota nobody no quota' changes nothing" in queue


def test_a_row_that_loses_jobs_is_never_the_best() -> None:
    row = {
        "change": "as is", "avg_jct_s": 100.0, "ratio_to_base": 1.0, "ratio_low": None,
        "ratio_high": None, "left_out_jobs": 0, "cut_jobs": 0,
    }  # fmt: skip
    less = {**row, "change": "-9 nodes a100", "avg_jct_s": 10.0, "left_out_jobs": 285}
    assert best_sentence([row, less]) == (
        "No change shortens the mean JCT. '-9 nodes a100' is not compared: 285 jobs fit no more."
    )
    more = {**row, "change": "+1 node", "avg_jct_s": 90.0, "ratio_to_base": 0.9}
    assert best_sentence([row, less, more]).startswith("Shortest mean JCT: '+1 node', 0.90x")
