"""`dovetail reproduce`: refusals, and a whole paper on generated months."""

import json
from pathlib import Path

import pytest
from command_runner import Shell
from papers.finding import Finding, Findings
from papers.setting import Setting
from papers.studies import Study
from papers.trials import Trials

from papers import studies


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> list[Setting]:
    """Puts a small paper in the place of every study; returns the settings it was given."""
    given: list[Setting] = []

    def find(setting: Setting, trials: Trials) -> Findings:
        given.append(setting)
        return Findings((Finding("Table 1", "mean JCT", 3.0, "h", 3.1, (3.0, 3.2)),))

    monkeypatch.setattr("papers.studies.study_called", lambda name: Study(name, "all", find))
    return given


def test_effort_seeds_and_data_reach_the_study(
    shell: Shell, paper: list[Setting], tmp_path: Path
) -> None:
    said = shell.ok("reproduce", "afs", "--quick", "--seeds", 3, "--data", tmp_path)
    assert paper == [Setting(tmp_path, "quick", 3)]
    assert "1 rows: 1 within." in said.out
    shell.ok("reproduce", "afs", "--full", "--data", tmp_path)
    assert paper[-1] == Setting(tmp_path, "full", 0)


def test_json_and_folder_hold_the_same(shell: Shell, paper: list[Setting], tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = shell.ok("reproduce", "afs", "--json", "-o", out).json
    assert said["rows"][0]["verdict"] == "within"
    assert said == json.loads((out / "summary.json").read_text())


def test_bad_words_are_refused_before_anything_runs(shell: Shell, tmp_path: Path) -> None:
    assert "exclude each other" in shell.refused("reproduce", "afs", "--quick", "--full")
    assert "--processes" in shell.refused("reproduce", "afs", "--processes", -1)
    assert "did you mean 'afs'" in shell.refused("reproduce", "asf").lower()
    assert "is no folder" in shell.refused("reproduce", "afs", "--data", tmp_path / "none")
    full = tmp_path / "full"
    full.mkdir()
    assert "exists already" in shell.refused("reproduce", "afs", "-o", full)


def test_the_help_names_every_study(shell: Shell) -> None:
    assert all(name in shell.ok("reproduce", "--help").out for name in studies.STUDIES)
