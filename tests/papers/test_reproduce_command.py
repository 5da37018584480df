"""`python -m papers`: refusals, and a whole paper on generated months."""

import json
from pathlib import Path

import pytest
from command_runner import Shell

from papers.frame import paper as catalogue
from papers.frame.claim import Claim
from papers.frame.experiment import Experiment, Results
from papers.frame.paper import Paper
from papers.frame.scope import Scope


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> list[Scope]:
    """Puts a small paper in the place of every study; returns the settings it was given."""
    given: list[Scope] = []

    def experiment(scope: Scope, results: Results) -> Experiment:
        given.append(scope)
        return Experiment(scope, results)

    def small(name: str) -> Paper[Experiment]:
        claim = Claim("Table 1", "mean JCT", 3.0, "h", 3.1, (3.0, 3.2))
        none, one = (lambda _: ()), (lambda _: [claim])
        return Paper(name, "all", experiment, none, one, none, none)

    monkeypatch.setattr("papers.frame.paper.paper_called", small)
    return given


def test_effort_seeds_and_data_reach_the_study(
    shell: Shell, paper: list[Scope], tmp_path: Path
) -> None:
    said = shell.ok("afs", "--quick", "--seeds", 3, "--data", tmp_path)
    assert paper == [Scope(tmp_path, "quick", 3)]
    assert "1 rows: 1 within." in said.out
    shell.ok("afs", "--full", "--data", tmp_path)
    assert paper[-1] == Scope(tmp_path, "full", 0)


def test_json_and_folder_hold_the_same(shell: Shell, paper: list[Scope], tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = shell.ok("afs", "--json", "-o", out).json
    assert said["rows"][0]["verdict"] == "within"
    assert said == json.loads((out / "summary.json").read_text())


def test_bad_words_are_refused_before_anything_runs(shell: Shell, tmp_path: Path) -> None:
    assert "exclude each other" in shell.refused("afs", "--quick", "--full")
    assert "--processes" in shell.refused("afs", "--processes", -1)
    assert "did you mean 'afs'" in shell.refused("asf").lower()
    assert "is no folder" in shell.refused("afs", "--data", tmp_path / "none")
    full = tmp_path / "full"
    full.mkdir()
    assert "exists already" in shell.refused("afs", "-o", full)


def test_without_a_paper_all_are_listed(shell: Shell) -> None:
    listed = shell.ok().out.splitlines()
    assert [line.split()[0] for line in listed] == list(catalogue.PAPERS)
    assert list(shell.ok("--json").json["papers"]) == list(catalogue.PAPERS)


def test_the_help_names_every_study(shell: Shell) -> None:
    assert all(name in shell.ok("--help").out for name in catalogue.PAPERS)
