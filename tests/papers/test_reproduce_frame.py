"""The frame of all papers: verdicts, runs played once, and what is written."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from dovetail.core.errors import InputError
from dovetail.report.plots import canvas
from papers.afs.experiments import ToyRun
from papers.frame.claim import (
    BESIDE,
    HOLDS,
    MISSED,
    SHOWN,
    WITHIN,
    Claim,
    Plot,
    Reproduction,
    at_most,
    ratio_band,
)
from papers.frame.experiment import Experiment, Numbers, Results
from papers.frame.page import cells, reproduction_dict, sentence, view, write_reproduction
from papers.frame.paper import PAPERS, Paper, paper_called
from papers.frame.scope import Scope, find_data


@dataclass(frozen=True)
class Counted:
    """A trial that counts how often any of its kind was played."""

    value: float
    plays: ClassVar[list[float]] = []

    def play(self) -> Numbers:
        self.plays.append(self.value)
        if self.value < 0:
            raise InputError("trial", "went wrong")
        return {"twice": 2 * self.value}


@pytest.fixture
def plays() -> list[float]:
    Counted.plays.clear()
    return Counted.plays


def empty_picture() -> Plot:
    return Plot("fig-1", "Figure 1", "Nothing & more.", lambda: canvas.sheet()[0])


def some_findings() -> Reproduction:
    rows = (
        Claim("Table 1", "mean <JCT>", 2.0, "h", 2.1, ratio_band(2.1, 0.1)),
        Claim("Table 1", "tail", 9.0, "h", 2.0, (1.0, 3.0), why="the tail is another"),
        Claim("Figure 1", "order", holds=True),
        Claim("Figure 1", "metric", 12345.6),
    )
    return Reproduction(*TITLES, rows, (empty_picture(),), ("generated months",))


TITLES = ("A paper", "One table and one figure.")
STUDY = Paper(
    *TITLES,
    Experiment,
    lambda _: (),
    lambda _: some_findings().claims,
    lambda _: [empty_picture()],
    lambda _: ["generated months"],
)


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (Claim("p", "w", 1.0, band=(1.0, 2.0)), WITHIN),
        (Claim("p", "w", 2.1, band=(1.0, 2.0)), MISSED),
        (Claim("p", "w", None, band=(1.0, 2.0)), MISSED),
        (Claim("p", "w", float("nan"), band=(1.0, 2.0)), MISSED),
        (Claim("p", "w", holds=True), HOLDS),
        (Claim("p", "w", 1.5, band=(1.0, 2.0), holds=False), MISSED),
        (Claim("p", "w", 1.0, published=5.0), BESIDE),
        (Claim("p", "w", 1.0), SHOWN),
    ],
)
def test_every_row_has_its_verdict(finding: Claim, verdict: str) -> None:
    assert finding.verdict == verdict


def test_one_per_cent_is_a_tie() -> None:
    assert at_most(1.01, 1.0)
    assert not at_most(1.02, 1.0)
    assert ratio_band(2.0, 0.3) == (1.4, 2.6)


def test_a_trial_is_played_once_whoever_asks(plays: list[float]) -> None:
    told: list[float] = []
    trials = Results(processes=1, progress=told.append)
    assert trials.play([Counted(2), Counted(1), Counted(2)]) == [{"twice": n} for n in (4, 2, 4)]
    assert trials.play([Counted(1), Counted(3)]) == [{"twice": 2}, {"twice": 6}]
    assert plays == [2, 1, 3]
    assert told == [0.5, 1.0, 1.0]


def test_what_a_trial_raises_is_raised(plays: list[float]) -> None:
    with pytest.raises(InputError, match="went wrong"):
        Results(processes=1).play([Counted(-1)])


def test_the_number_of_processes_changes_no_outcome() -> None:
    asked = [ToyRun("srtf"), ToyRun("max-min"), ToyRun("srtf", 1.5)]
    assert Results(processes=1).play(asked) == Results(processes=2).play(asked)


def test_the_folder_holds_all_rows_and_plots(tmp_path: Path) -> None:
    write_reproduction(STUDY.reproduce(Scope(None), Results()), tmp_path)
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {"fig-1.png", "fig-1.svg"}
    with (tmp_path / "rows.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [r["verdict"] for r in rows] == [WITHIN, MISSED, HOLDS, SHOWN]
    assert (rows[1]["low"], rows[1]["high"], rows[1]["why"]) == (
        "1.0",
        "3.0",
        "the tail is another",
    )
    said = json.loads((tmp_path / "summary.json").read_text())
    assert said == reproduction_dict(some_findings())
    assert said["verdicts"] == {WITHIN: 1, HOLDS: 1, MISSED: 1, BESIDE: 0, SHOWN: 1}
    page = (tmp_path / "report.html").read_text()
    assert "mean &lt;JCT&gt;" in page
    assert "the tail is another" in page
    assert "generated months" in page


def test_the_terminal_says_why_a_row_missed() -> None:
    from rich.console import Console

    console = Console(width=100)
    with console.capture() as said:
        console.print(view(some_findings()))
    assert "4 rows: 1 within, 1 holds, 1 missed, 1 no published value." in said.get()
    assert "missed: tail: the tail is another" in said.get()
    assert cells(Claim("p", "w", 12345.6, "s")) == ["w", "", "12,346 s", "", SHOWN]
    assert sentence(Reproduction("", "", ())) == "Nothing was found."


def test_bad_settings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="unknown 'fast'"):
        Scope(None, "fast")
    with pytest.raises(InputError, match="--seeds"):
        Scope(None, seeds=-1)
    with pytest.raises(InputError, match="is no folder"):
        find_data(tmp_path / "none")
    monkeypatch.setenv("DOVETAIL_DATA", str(tmp_path / "none"))
    with pytest.raises(InputError, match="DOVETAIL_DATA"):
        find_data(None)


def test_data_is_found_as_given_then_by_the_variable_then_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, named, here = (tmp_path / name for name in ("given", "named", "here"))
    for folder in (given, named, here):
        folder.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("DOVETAIL_DATA", str(named))
    assert find_data(given) == given
    assert find_data(None) == named
    monkeypatch.delenv("DOVETAIL_DATA")
    assert find_data(None) is None
    (tmp_path / "shared").mkdir()
    assert find_data(None) == Path("../shared")
    assert Scope(given).path("x") == given / "x"
    assert Scope(tmp_path).has("given", "named")
    assert not Scope(None).has("given")


def test_effort_chooses_a_number() -> None:
    assert [Scope(None, e).chosen(1, 2, 3) for e in ("quick", "default", "full")] == [1, 2, 3]


def test_every_study_listed_is_there() -> None:
    for name in PAPERS:
        assert paper_called(name).title
    with pytest.raises(InputError, match="afs"):
        paper_called("asf")
