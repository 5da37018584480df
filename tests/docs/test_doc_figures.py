"""Figures printed in the documentation are those that the program gives today."""

import importlib
import re
from pathlib import Path

import pytest

from benchmarks import iteration_times
from benchmarks.contention import print_errors, sources
from doc_pages import ROOT, blocks
from dovetail.cli.main import run
from tools.zoo.predicted_times import PredictedTimes


@pytest.mark.parametrize(
    "takes_minutes", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "minutes"]
)
def test_the_fidelity_page_prints_what_its_command_prints(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, takes_minutes: bool
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    fidelity = importlib.import_module("benchmarks.fidelity")
    text = (ROOT / "docs/claims/fidelity.md").read_text()
    table = re.findall(r"^\| (?:Muri|AFS),.*$", text, re.MULTILINE)
    assert len(table) == len(fidelity.CASES)
    for case, row in zip(fidelity.CASES, table, strict=True):
        _, _, command, theirs, ours, relative, _, _ = (cell.strip() for cell in row.split("|"))
        assert f"--policy {case.policy}`" in command
        assert float(theirs) == case.avg_jct_s
        if case.takes_minutes is not takes_minutes:
            continue
        measured = fidelity.run_command(case.words(str(data_dir))).avg_jct_s
        assert f"{measured:.{len(ours.partition('.')[2])}f}" == ours, case.name
        difference = fidelity.relative(measured, case.avg_jct_s)
        assert f"{difference:.0e}".replace("e-0", "e-") == relative, case.name


def test_the_physics_page_prints_the_errors_by_source(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs/concepts/physics.md").read_text()
    table = text.partition("| source | held out | rows | mean | p90 | worst |")[2]
    rows = re.findall(r"^\| (?!-)(.*) \|$", table.partition("\n\n")[0], re.MULTILINE)
    print_errors(sources(data_dir))
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) > 10
    for row in rows:
        assert row.replace(" |", "").strip() in said, row


@pytest.mark.slow
def test_the_physics_page_states_the_errors_of_iteration_times(data_dir: Path) -> None:
    text = " ".join((ROOT / "docs/concepts/physics.md").read_text().split())
    for source, by_model in iteration_times.sources(data_dir).items():
        means = sorted(100 * times.error.mean for times in by_model.values())
        worst = 100 * PredictedTimes.joined(by_model.values()).error.worst
        assert f"{means[0]:.1f} to {means[-1]:.1f}% ({worst:.1f}%)" in text, source


@pytest.mark.slow
def test_the_readme_prints_what_the_demo_prints(capsys: pytest.CaptureFixture[str]) -> None:
    shown = next(b.text for b in blocks(ROOT / "README.md") if "vs fifo" in b.text)
    assert run(["demo"]) == 0
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in shown.splitlines():
        assert " ".join(line.split()) in said, f"the demo does not print: {line}"
