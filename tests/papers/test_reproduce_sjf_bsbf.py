"""The SJF-BSBF paper: its beds have the traits they claim, and a small run fills every table."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from dovetail.study.options import Options
from papers.frame.claim import BESIDE, MISSED, SHOWN
from papers.frame.experiment import Numbers, Results
from papers.frame.scope import Scope
from papers.sjf_bsbf import paper
from papers.sjf_bsbf.claims import RIVALS, assumptions
from papers.sjf_bsbf.experiments import SjfBsbfExperiment, sjf_bsbf_run
from papers.sjf_bsbf.published import RATIOS, SWEEP, TABLES
from papers.sjf_bsbf.workloads import LARGE_ABOVE_GPUS, MODELS, SjfBsbfWorkload


@pytest.mark.parametrize("kind", ["implied", "even", "wide", "wide even"])
def test_generated_beds_have_the_implied_shares_and_means(kind: str) -> None:
    traces = [SjfBsbfWorkload(kind, 240, seed, "").trace() for seed in range(20)]
    gpus = np.concatenate([t.jobs.gpus for t in traces])
    length_h = np.concatenate([t.duration_s for t in traces]) / 3600
    large = gpus > LARGE_ABOVE_GPUS
    assert large.mean() == pytest.approx(0.122, abs=0.002)
    assert length_h[large].mean() == pytest.approx(1.75, rel=0.12)
    assert length_h[~large].mean() == pytest.approx(0.55, rel=0.12)
    assert all(np.ptp(t.jobs.submit_s) <= 8 * 3600 for t in traces)
    assert {t.jobs.model[i] for t in traces for i in range(len(t))} == set(MODELS)
    if "wide" in kind:
        small = gpus[~large]
        assert [float((small == n).mean()) for n in (1, 2, 4)] == pytest.approx(
            [1 / 3] * 3, abs=0.03
        )
    if "even" in kind:
        spread = length_h[~large].std() / length_h[~large].mean()
        assert spread == pytest.approx((4900 / 12**0.5) / 2550, rel=0.05)


def test_the_testbed_has_twenty_small_and_ten_large_jobs_at_its_load() -> None:
    trace = SjfBsbfWorkload("physical", 30, 3, "").trace()
    gpus = trace.jobs.gpus
    assert len(trace) == 30
    assert int((gpus <= 8).sum()) == 20
    assert set(gpus[gpus > 8].tolist()) <= {12, 16}
    work = float((trace.duration_s * gpus).sum())
    assert np.ptp(trace.jobs.submit_s) <= work / (16 * 1.25)


def test_a_bed_is_the_same_for_the_same_seed_and_differs_for_another() -> None:
    same = [SjfBsbfWorkload("implied", 60, 5, "").trace().duration_s for _ in range(2)]
    assert (same[0] == same[1]).all()
    assert (SjfBsbfWorkload("implied", 60, 6, "").trace().duration_s != same[0]).any()


def test_beds_of_real_workloads_keep_their_jobs(data_dir: Path) -> None:
    tuned = SjfBsbfWorkload("tuned", 240, 0, str(data_dir)).trace()
    assert len(tuned) == 240
    implied = SjfBsbfWorkload("implied", 240, 0, str(data_dir)).trace()
    assert int((implied.jobs.gpus > LARGE_ABOVE_GPUS).sum()) == 29
    philly = SjfBsbfWorkload("philly", 240, 0, str(data_dir)).trace()
    assert len(philly) == 240
    assert np.ptp(philly.jobs.submit_s) <= 8 * 3600


def test_one_run_answers_in_hours_by_class_and_model() -> None:
    numbers = sjf_bsbf_run(SjfBsbfWorkload("implied", 40, 0, ""), "sjf-bsbf").play()
    share = 5 / 40
    whole = share * numbers["jct large"] + (1 - share) * numbers["jct small"]
    assert numbers["jct all"] == pytest.approx(whole)
    assert numbers["q:0"] <= numbers["q:50"] <= numbers["q:99"]
    assert all(numbers[f"wait {model}"] >= 0 for model in MODELS)


OPTIONS = fields(Options)


class Guesses(Results):
    """Answers at once: sharing wisely takes 1 hour, first fit 2, all others 3."""

    def play(self, trials: object) -> list[Numbers]:
        return [_Hours(trial.policy) for trial in trials]  # type: ignore[attr-defined]


class _Hours(dict[str, float]):
    def __init__(self, policy: str) -> None:
        super().__init__()
        self._hours = {"sjf-bsbf": 1.0, "sjf-ffs": 2.0}.get(policy.partition(":")[0], 3.0)

    def __missing__(self, key: str) -> float:
        return 100.0 if key == "q:" else self._hours


def test_every_row_of_the_tables_is_there_and_misses_say_why() -> None:
    reproduction = paper.reproduce(Scope(None, "quick"), Guesses())
    rows = {(row.part, row.what): row for row in reproduction.claims}
    assert len(rows) == len(reproduction.claims)
    held = [row for row in reproduction.claims if row.verdict not in (BESIDE, SHOWN)]
    assert len(held) == 2 * 4 + len(RATIOS) + 2 + len(SWEEP)
    assert all(row.why for row in held if row.verdict == MISSED)
    ratio = rows["Table III: 240 jobs", "sjf-bsbf / sjf-ffs"]
    assert ratio.ours == pytest.approx(0.5)
    assert ratio.verdict == MISSED
    assert ratio.published == pytest.approx(1.01 / 1.23)
    shown = [row for row in reproduction.claims if row.verdict == BESIDE]
    assert {row.published for row in shown} >= {
        value
        for tables in TABLES.values()
        for policy, values in tables["jct"].items()
        if policy != "pollux"
        for value in values
    }
    assert any("GENERATED" in note for note in reproduction.notes)


def test_each_variation_changes_one_thing() -> None:
    results = SjfBsbfExperiment(Scope(None, "quick"), Guesses())
    varied = assumptions(results)
    base = varied[0][1]
    for words, run in varied[1:11]:
        pairs = [(getattr(run, f), getattr(base, f)) for f in ("workload", "policy")]
        pairs += [(getattr(run.options, f.name), getattr(base.options, f.name)) for f in OPTIONS]
        assert sum(mine != other for mine, other in pairs) == 1, words
    assert {"sjf", "tiresias", "sjf-ffs"} == set(RIVALS)


def test_its_pictures_can_be_drawn() -> None:
    reproduction = paper.reproduce(Scope(None, "quick"), Guesses())
    assert [p.name for p in reproduction.plots] == [
        *(f"figure-{n}" for n in ("2", "3", "4a", "4b", "5a", "5b", "6a", "6b"))
    ]
    for picture in reproduction.plots:
        assert picture.draw().axes
