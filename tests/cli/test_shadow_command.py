"""`dovetail shadow` on files, and its errors."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from dovetail.cli.main import run
from dovetail.shadow.worth import ShadowSide, Worth
from tests.shadow.slurm_scene import NAMES, sample

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name in NAMES:
        (tmp_path / f"{name}.json").write_text(sample(name))
    return [f"--squeue={tmp_path}/squeue.json", f"--sinfo={tmp_path}/sinfo.json"]


def test_advice_is_printed(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shadow", "slurm", "--policy", "srtf", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "2026-11-23 00:13:05 UTC, cluster pretended: 0 of 24 GPUs free on 6 nodes; running jobs: "
        "6, waiting: 3, held back by Slurm: 6 (BeginTime 1, Dependency 1, JobArrayTaskLimit 3, "
        "JobHeldUser 1)"
    )
    assert lines[1] == "  (left out: 1 job without GPUs)"
    assert "  preempt 3 on n1:4 + n2:4: its GPUs go to 9" in lines
    assert "  order 9, 5_2, 8 instead of 8, 5_2, 9" in lines


def test_advice_is_one_json_object(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shadow", "slurm", "--policy", "sjf", "--json", "--once", *files]) == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["order"] == ["9", "5_2", "8"]
    assert advice["slurm_order"] == ["8", "5_2", "9"]


def test_every_field_of_the_json_is_documented(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["shadow", "slurm", "--policy", "srtf", "--json", *files]) == 0
    advice = json.loads(capsys.readouterr().out)
    page = (ROOT / "docs/reference/json.md").read_text()
    text = page[page.index("`shadow slurm`") :]
    for name in (*advice, *advice["actions"][0]):
        assert re.search(rf"\b{name}\b", text), name
    for name in (f.name for cls in (Worth, ShadowSide) for f in fields(cls)):
        assert re.search(rf"\b{name}\b", text), name


def later_accounting(folder: Path) -> Path:
    """Writes what sacct says after the running jobs of the scene have ended."""
    accounting = json.loads(sample("sacct"))
    for job in accounting["jobs"]:
        if job["state"]["current"] == "RUNNING":
            job["state"]["current"] = "COMPLETED"
            job["time"] |= {"end": job["time"]["start"] + 100, "elapsed": 100}
    path = folder / "later.json"
    path.write_text(json.dumps(accounting))
    return path


def test_a_log_is_written_and_reported(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "fifo.jsonl"
    assert run(["shadow", "slurm", "--policy", "fifo", "--log", str(log), *files]) == 0
    sacct = later_accounting(tmp_path)
    capsys.readouterr()
    assert run(["shadow", "report", str(log), "--sacct", str(sacct)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("2026-11-23 00:13:05 UTC to 2026-11-23 00:14:43 UTC: 1 look, ")
    assert "mean wait, s" in text and "assumed:" in text
    assert run(["shadow", "report", str(log), "--sacct", str(sacct), "--json"]) == 0
    worth = json.loads(capsys.readouterr().out)
    assert worth["jobs"] == 4 and worth["recorded"]["wait_s"] == 98.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "squeue: there is no such command here"),
        (["--squeue=missing.json"], "--squeue: it goes with --sinfo"),
        (["--squeue=missing.json", "--sinfo=missing.json"], "missing.json: cannot be read"),
        (["--once", "--every=5"], "--once: it excludes --every"),
        (["--yes"], "--yes: there is nothing to carry out"),
        (["--squeue=a", "--sinfo=b", "--act=order"], "files do not change and take no orders"),
    ],
)
def test_what_cannot_work_is_one_sentence(
    options: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(["shadow", "slurm", "--policy", "fifo", *options]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo \"squeue: unrecognized option '--json'\" >&2; exit 1", "Slurm 22.05 or later"),
        ("echo 'slurm_load_jobs error: connect failure' >&2; exit 1", "connect failure"),
        ("exit 3", "exit code 3"),
        ("echo hello", "is no JSON"),
    ],
)
def test_a_command_that_fails_speaks_for_itself(
    tmp_path: Path,
    script: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("squeue", "sinfo"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["shadow", "slurm", "--policy", "fifo"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("nodes", ["sinfo", "scontrol"])
def test_the_commands_of_slurm_are_asked(
    files: list[str],
    tmp_path: Path,
    nodes: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where scontrol has no --json, as in 22.05, sinfo is asked for the nodes."""
    answers = {"squeue": "squeue", nodes: "sinfo"}
    for name in ("squeue", "sinfo", "scontrol"):
        fails = f"echo \"{name}: unrecognized option '--json'\" >&2; exit 1"
        script = f"exec /bin/cat {tmp_path}/{answers[name]}.json" if name in answers else fails
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["shadow", "slurm", "--policy", "srtf", "--json"]) == 0
    by_command = json.loads(capsys.readouterr().out)
    assert run(["shadow", "slurm", "--policy", "srtf", "--json", *files]) == 0
    by_file = json.loads(capsys.readouterr().out)
    assert by_command["order"] == by_file["order"]
    assert by_command["free_gpus"] == by_file["free_gpus"] == 0


def history(folder: Path) -> Path:
    """Writes a log in which small jobs of the scene run long, and big ones short."""
    record = {
        "source": "sacct.txt", "format": "slurm", "counts": {"read": 36, "usable": 36},
        "gpu_s": 1.0, "lost_gpu_s": 0.0, "notes": [], "epoch_s": 1793000000.0, "zone": "UTC",
    }  # fmt: skip
    ran_s = {"uucp/big": 20, "news/tasks": 200, "proxy/small": 500}
    lines = [f"# dovetail import: {json.dumps(record)}"]
    lines.append("job_id,submit_s,gpus,duration_s,user,recurrence")
    for i in range(36):
        name = list(ran_s)[i % 3]
        lines.append(f"{i},{i * 1000},2,{ran_s[name]},{name.partition('/')[0]},{name}")
    path = folder / "month.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_shadow_predicts_lengths_from_the_log_of_earlier_jobs(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["shadow", "slurm", "--policy", "sjf", "--json", *files]
    log = tmp_path / "sjf.jsonl"
    told = ["--forecast", "predicted", "--history", str(history(tmp_path))]
    assert run([*words, *told, "--log", str(log)]) == 0
    # By their limits the small job (9) is first, by what jobs like them did the big one (8).
    assert json.loads(capsys.readouterr().out)["order"][0] == "8"
    report = ["shadow", "report", str(log), f"--sacct={later_accounting(tmp_path)}"]
    assert run(report) == 2
    assert "no earlier jobs to learn from" in capsys.readouterr().err
    assert run([*report, "--history", str(history(tmp_path))]) == 0


def test_predictions_without_a_log_are_refused_with_the_mend(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["shadow", "slurm", "--policy", "sjf", *files]
    assert run([*words, "--forecast", "predicted"]) == 2
    assert "--history month.csv" in capsys.readouterr().err
    assert run([*words, "--history", str(history(tmp_path))]) == 2
    assert "only --forecast predicted uses it" in capsys.readouterr().err


def test_one_waiting_job_is_next_and_a_long_policy_is_named_briefly(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["shadow", "slurm", "--policy", "slurm", *files]) == 0
    said = capsys.readouterr().out
    assert "slurm would" in said.splitlines()
    assert said.count("it is next in the policy's order") <= 1
    assert max(map(len, said.splitlines())) < 300
