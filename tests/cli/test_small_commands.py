"""`dovetail bound`, `policies`, `replay`: what they say, in words and in JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_runner import Shell

from dovetail.core.policy import registered


def test_bound_prints_every_bound_and_marks_the_largest(shell: Shell, month: Path) -> None:
    said = shell.ok("bound", month, "--cluster", "4x4").out.splitlines()
    assert said[0] == "250 jobs; powers allowed: exclusive, rigid"
    assert said[1].endswith("<- the bound")
    assert sum("mean JCT at least" in line for line in said) == 5
    assert "makespan at least" in said[-2]
    assert said[-1].startswith("How loose: of the best schedule of four jobs 91%")


def test_a_table_is_printed_where_the_terminal_knows_ascii_only(month: Path) -> None:
    command = [sys.executable, "-m", "dovetail", "compare", str(month), "--cluster", "4x4"]
    command += ["--policies", "fifo,srtf", "--forecast", "known"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""
    assert "?" in done.stdout and done.stdout.isascii()


def test_bound_says_it_all_in_json(shell: Shell, month: Path) -> None:
    rigid, elastic = (
        shell.ok("bound", month, "--cluster", "4x4", "--adopt", "elastic:1", "--json", *more).json
        for more in ((), ("--elastic",))
    )
    assert rigid["bound_s"] == max(rigid["bounds"].values()) == rigid["bounds"][rigid["by"]]
    assert elastic["powers"] == "exclusive, elastic"
    assert elastic["bound_s"] <= rigid["bound_s"]


def test_bound_is_refused_where_none_holds(shell: Shell, month: Path) -> None:
    assert "no bound holds" in shell.refused("bound", month, "--cancelled", "clock")
    assert "NODESxGPUS" in shell.refused("bound", month, "--cluster", "4")


def test_bound_counts_jobs_that_never_fit(shell: Shell, tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s\na,0,1,10\nb,0,64,10\n")
    words = ("bound", trace, "--cluster", "1x4")
    assert "--allow-left-out 99% accepts it" in shell.refused(*words)
    words = (*words, "--allow-left-out", "99%")
    said = shell.ok(*words)
    assert said.out.startswith("note: the cluster can never hold 1 of 2 jobs (50.0%)")
    assert "1 jobs can never fit this cluster" in said.out
    assert shell.ok(*words, "--json").json["left_out"] == 1


def test_policies_lists_every_policy_with_what_it_knows_and_may(shell: Shell) -> None:
    said = shell.ok("policies", "--json").json["policies"]
    assert set(said) == set(registered())
    assert said["srtf"]["knows"] == ["length"]
    assert "preempt" in said["srtf"]["powers"]
    assert said["tiresias"]["parameters"] == ["thresholds", "inside", "bypass", "sizes"]
    text = shell.ok("policies").out
    assert all(f"\n{name}\n" in f"\n{text}" for name in registered())


def test_policies_says_all_about_one(shell: Shell) -> None:
    said = shell.ok("policies", "tiresias").out
    assert said.startswith("tiresias:thresholds=3250")
    assert "Source:" in said
    assert "did you mean 'tiresias'?" in shell.refused("policies", "tiresas")


@pytest.fixture
def log(shell: Shell, month: Path, tmp_path: Path) -> Path:
    out = tmp_path / "run"
    words = ("simulate", month, "-p", "srtf", "--cluster", "4x4", "--no-report", "--no-bound")
    shell.ok(*words, "-o", out)
    return out / "events.jsonl"


def test_replay_of_the_recorded_policy_finds_no_difference(shell: Shell, log: Path) -> None:
    said = shell.ok("replay", log)
    assert "0 placements differ" in said.out
    assert shell.ok("replay", log, "--json").json["differences"] == []


def test_replay_of_another_policy_shows_the_first_differences(shell: Shell, log: Path) -> None:
    said = shell("replay", log, "--policy", "fifo")
    assert said.code == 1
    lines = said.out.splitlines()
    assert len(lines) == 12
    assert lines[1].startswith("  at ")
    assert lines[-1].endswith("more (--json lists them all)")
    listed = shell("replay", log, "--policy", "fifo", "--json")
    found = json.loads(listed.out)
    assert listed.code == 1
    assert f"{found['decisions']} decisions, {len(found['differences'])} placements" in lines[0]


def test_replay_of_what_is_no_whole_log_is_refused(
    shell: Shell, log: Path, month: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_text(log.read_text()[:20_000])
    shell.refused("replay", cut)
    shell.refused("replay", month)
    shell.refused("replay", tmp_path / "gone")
    assert "did you mean 'srtf'?" in shell.refused("replay", log, "-p", "srft")
