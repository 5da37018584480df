"""The Muri paper: worked examples by hand, the testbed against its logs, and a whole small run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from papers.frame.claim import MISSED, WITHIN
from papers.frame.experiment import Numbers, Results, sequence
from papers.frame.scope import Scope
from papers.muri import examples as muri_examples
from papers.muri import paper
from papers.muri.claims import simulated, stored
from papers.muri.experiments import CYCLE, POINTS, MuriExperiment, MuriRun, _averages, tail_s
from papers.muri.testbed import errors, find_testbed, measured_numbers, paired
from papers.muri.workloads import MuriWorkload, available, typed


def test_the_examples_come_out_as_worked_by_hand() -> None:
    found = {(r.part[:8], r.what): r.ours for r in muri_examples.claims()}
    assert found["Figures ", "efficiency of A and B"] == 1.0
    assert found["Figures ", "efficiency of A and C"] == 0.75
    assert found["Figure 6", "best ordering: no longer than either alone"] == 5.0
    assert found["Figure 6", "worst ordering"] == 6.0
    # 776 of 1006 ms load, and one cycle for all four of (776 + 514 + 415 + 110) ms without waits.
    assert found["Table 1:", "ShuffleNet: load and preprocess"] == pytest.approx(77.137, abs=1e-3)
    assert found["Table 2:", "sum of the four, equation 3"] == pytest.approx(2.249, abs=1e-3)
    contended = found["Table 2:", "sum of the four, equation 3, measured contention"]
    assert contended == pytest.approx(2.2487 / 1.35, abs=1e-3)
    assert found["Figure 7", "cycle of A and C, on their own"] == 2.0
    assert found["Figure 7", "C waits for A, whose other worker waits for B"] == 3.0


def test_both_tables_of_stages_lie_within_their_bands() -> None:
    rows = [*muri_examples.table_1(), *muri_examples.table_2()]
    assert len(rows) == 12 + 4 + 5 + 5 + 5
    assert {r.verdict for r in rows} == {WITHIN}


def test_errors_are_relative_to_what_was_measured() -> None:
    ours, theirs = np.array([90.0, 220.0, 330.0]), np.array([100.0, 200.0, 300.0])
    median, p90, rank = errors(ours, theirs)
    assert median == pytest.approx(0.1)
    assert p90 == pytest.approx(0.1)
    assert rank == pytest.approx(1.0)
    assert errors(ours[::-1], theirs)[2] == pytest.approx(-1.0)


def test_the_tail_is_the_authors() -> None:
    assert tail_s(np.arange(400.0)) == 396.0
    assert tail_s(np.array([7.0])) == 7.0


def test_measured_numbers_of_three_jobs() -> None:
    log = {"a": (10.0, 10.0), "b": (20.0, 50.0), "c": (60.0, 65.0)}
    assert measured_numbers(log) == {"avg_jct_s": 30.0, "makespan_s": 65.0, "p99_jct_s": 60.0}


def test_values_that_hold_for_a_while_are_averaged_between_edges() -> None:
    begin, end = np.array([0.0, 2.0]), np.array([4.0, 8.0])
    found = _averages(begin, end, np.array([1.0, 3.0]), np.array([0.0, 4.0, 8.0]))
    assert found == pytest.approx([1.0 + 3.0 * 2 / 4, 3.0])


def test_a_prime_brings_all_jobs_at_once_in_the_same_order() -> None:
    plain = MuriWorkload("generated month")
    primed = replace(plain, at_once=True, longer=1.5)
    assert (plain.label, primed.label) == ("generated month", "generated month'")
    assert primed.trace().jobs.job_id == plain.trace().jobs.job_id
    assert not primed.trace().jobs.submit_s.any()
    assert primed.trace().duration_s == pytest.approx(1.5 * plain.trace().duration_s)


def test_a_detailed_run_says_what_was_used_over_time() -> None:
    few = MuriWorkload("generated month", first=25)
    kept = MuriRun(few, "muri-s", detailed=True).play()
    used = np.array([sequence(kept, r) for r in ("storage", "cpu", "gpu", "network")])
    assert used.shape == (4, POINTS)
    assert (used >= -1e-9).all() and (used <= 1.0 + 1e-9).all() and used.any(axis=1).all()
    assert sum(k.startswith("jct:") for k in kept) == 25
    assert (
        kept["avg_jct_s"]
        <= MuriRun(few, "muri-s").varied(cycle="barrier").play()["avg_jct_s"] * 1.5
    )


class Guesses(Results):
    """Answers at once: Muri takes 100 s, everybody else 200."""

    def play(self, runs: object) -> list[Numbers]:
        return [
            dict.fromkeys(
                ("avg_jct_s", "makespan_s", "p99_jct_s"),
                100.0 if run.policy.startswith("muri") else 200.0,
            )
            for run in runs  # type: ignore[attr-defined]
        ]


def test_without_the_traces_every_figure_is_filled_from_a_generated_month() -> None:
    found = paper.reproduce(Scope(None, "quick"), Guesses())
    parts = {row.part for row in found.claims}
    for number in (4, 6, 7, 9, 11, 12, 14):
        assert any(f"Figure {number}" in p or f"Figures {number}" in p for p in parts), number
    assert not any("estbed" in p for p in parts)
    assert "Generated months" in found.notes[0]
    assert any("no Tables 4 and 5" in note for note in found.notes)
    ours = [r.ours for r in found.claims if "SRTF over Muri-S" in r.what]
    assert ours and set(ours) <= {1.0, 2.0}
    for picture in found.plots:
        picture.draw()


def test_a_month_of_jobs_at_once_is_over_sooner_under_muri() -> None:
    few = MuriWorkload("generated month", first=150, at_once=True)
    last = {p: MuriRun(few, p).play()["makespan_s"] for p in ("srsf", "muri-s:tick-s=0")}
    assert last["muri-s:tick-s=0"] < 0.85 * last["srsf"]


def test_the_plan_knows_the_traces_of_the_data_folder(data_dir: Path) -> None:
    scope = Scope(data_dir)
    assert [j.label for j in available(scope)] == ["trace 2", "trace 3", "trace 4"]
    assert list(typed(scope)) == [1, 2, 3, 4]
    planned = MuriExperiment(scope, Results())
    assert planned.main.label == "trace 3"
    assert [("themis" in c.policies) for c in planned.cases] == [False, False, True, True] + [
        False
    ] * 2
    known = stored(scope)
    assert known["trace 3", "muri-l"][0] == pytest.approx(88686.97, abs=0.01)
    assert known["trace 3'", "2"][0] == pytest.approx(1348968.42, abs=0.01)


@pytest.mark.parametrize("policy", ["srtf", "srsf"])
def test_the_testbed_is_met_job_by_job(data_dir: Path, policy: str) -> None:
    """64 real V100: mean JCT within 6 %, half of the jobs within 5 %, ranks alike."""
    testbed = find_testbed(Scope(data_dir))
    assert testbed is not None
    _is_met(testbed, policy, mean=0.06, median=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["muri-s", "muri-l"])
def test_the_testbed_is_met_where_jobs_take_turns(data_dir: Path, policy: str) -> None:
    testbed = find_testbed(Scope(data_dir))
    assert testbed is not None
    # Muri-S: 15.2 %, as the page has had it since it was first played with these rules.
    _is_met(testbed, policy, mean=0.03, median=0.155)
    by_barriers = testbed.run(policy).varied(cycle="barrier")
    assert CYCLE == "overlapped"
    measured = measured_numbers(testbed.measured(policy))["avg_jct_s"]
    assert by_barriers.play()["avg_jct_s"] > 1.3 * measured, "contention counts twice"


def _is_met(testbed, policy: str, *, mean: float, median: float) -> None:  # type: ignore[no-untyped-def]
    run = testbed.run(policy)
    results = Results(known={run: run.play()})
    ours, theirs = paired(testbed, results, run, policy)
    assert len(ours) == 400
    assert ours.mean() == pytest.approx(theirs.mean(), rel=mean)
    middle, _, rank = errors(ours, theirs)
    assert middle < median
    assert rank > 0.98


def test_a_row_outside_its_band_gives_its_reason(data_dir: Path) -> None:
    planned = MuriExperiment(Scope(data_dir, "quick"), Guesses())
    rows = list(simulated(planned, stored(Scope(data_dir))))
    assert any(r.verdict == MISSED for r in rows), "a guess of 2 is no reproduction"
