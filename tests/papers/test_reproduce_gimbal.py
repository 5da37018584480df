"""The GIMBAL paper: its beds are those of Table 2, and a small run fills every table."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from dovetail.core.policy import parse_policy
from dovetail.physics.sharing.limits import shared_slowdown
from papers.frame.claim import MISSED
from papers.frame.experiment import Numbers, Results
from papers.frame.scope import Scope
from papers.gimbal import paper
from papers.gimbal.experiments import BOLD, STEPS, UPPERS, GimbalExperiment, gain_of, gimbal_run
from papers.gimbal.experiments import variations as all_variations
from papers.gimbal.pairs import (
    LIMITS,
    MODELS,
    PairRun,
    PairShares,
    bent_slowdown,
    gain_over_serial,
    is_unimodal,
    limited,
)
from papers.gimbal.search import SETS, ExampleRun, SetRun
from papers.gimbal.workloads import MIXES, SIZES, STAND_INS, GimbalWorkload, most_even, scaled


@pytest.mark.parametrize("mix", MIXES)
def test_beds_have_the_jobs_and_mean_gpus_of_table_2(mix: str) -> None:
    workloads = [GimbalWorkload(mix, seed, "") for seed in range(30)]
    for which, (name, mean) in enumerate(zip(STAND_INS, MIXES[mix].mean_gpus, strict=True)):
        gpus = []
        for workload in workloads:
            jobs = workload.trace().jobs
            rows = [i for i, job_id in enumerate(jobs.job_id) if job_id.startswith(name)]
            assert len(rows) == MIXES[mix].jobs[which]
            ours = {ours for _, ours, _ in STAND_INS[name]}
            assert {jobs.model[i] for i in rows} <= ours
            gpus += jobs.gpus[rows].tolist()
        assert set(gpus) <= set(SIZES)
        assert np.mean(gpus) == pytest.approx(mean, rel=0.06)


@pytest.mark.parametrize("mix", MIXES)
def test_beds_ask_for_the_published_makespan_at_their_load(mix: str) -> None:
    trace = GimbalWorkload(mix, 3, "", load=2.0).trace()
    hours = MIXES[mix].gavel_h
    work_s = float((trace.duration_s * trace.jobs.gpus).sum())
    assert work_s == pytest.approx(hours * 3600 * 32)
    assert trace.duration_s.max() <= hours * 3600 / 4
    assert np.ptp(trace.jobs.submit_s) == pytest.approx(hours * 3600 / 2)
    factor = (trace.jobs.deadline_s - trace.jobs.submit_s) / trace.duration_s
    assert factor.min() >= 1.5
    assert factor.max() <= 2.5


def test_the_longest_jobs_are_the_large_ones_unless_varied() -> None:
    def lengths(how: str) -> tuple[float, float]:
        trace = GimbalWorkload("philly", 1, "", lengths=how).trace()
        large = np.array([name.startswith("large") for name in trace.jobs.job_id])
        return float(trace.duration_s[large].min()), float(trace.duration_s[~large].max())

    shortest_large, longest_other = lengths("longest to the large")
    assert shortest_large >= longest_other
    shortest_large, longest_other = lengths("any")
    assert shortest_large < longest_other


def test_the_ablation_has_100_jobs_on_16_gpus() -> None:
    workload = GimbalWorkload("philly", 0, "", 100)
    trace = workload.trace()
    assert len(trace) == 100
    assert workload.nodes == 8
    work_s = float((trace.duration_s * trace.jobs.gpus).sum())
    assert work_s == pytest.approx(4.5 * 3600 * 32 * 100 / 150)


def test_a_bed_is_the_same_for_the_same_seed_and_differs_for_another() -> None:
    first = GimbalWorkload("philly", 5, "").trace().duration_s
    # Equal and yet another bed: nothing may be left over from the first.
    assert (GimbalWorkload("philly", 5, "", load=4.0).trace().duration_s == first).all()
    assert (GimbalWorkload("philly", 6, "").trace().duration_s != first).any()


def test_beds_of_real_traces_have_their_spread(data_dir: Path) -> None:
    real = GimbalWorkload("alibaba", 0, str(data_dir)).trace()
    assert len(real) == 300
    assert (real.duration_s != GimbalWorkload("alibaba", 0, "").trace().duration_s).any()


def test_most_even_shares_have_their_mean_and_tilt_one_way() -> None:
    assert most_even(3.75) == pytest.approx([0.25] * 4)
    shares = most_even(2.39)
    assert shares @ np.array(SIZES) == pytest.approx(2.39)
    assert (np.diff(shares) < 0).all()


def test_scaled_lengths_reach_the_work_with_the_longest_cut() -> None:
    lengths = scaled(np.array([1.0, 2.0, 100.0]), np.array([1, 2, 1]), 60.0, 50.0)
    # The last is cut to 50; the others share what is left, 10 = x + 2 * 2x.
    assert lengths == pytest.approx([2.0, 4.0, 50.0])


def test_gains_are_geometric_means_with_an_interval() -> None:
    found = gain_of([2.0, 8.0])
    assert found.mean == pytest.approx(4.0)
    # The logarithms are log 4 -+ log 2: deviation sqrt(2) log 2, half width t(1) log 2.
    assert found.high / 4 == pytest.approx(2**12.7062, rel=1e-4)
    assert found.low * found.high == pytest.approx(16.0)
    assert gain_of([1.25]).words == "1 workload"
    assert gain_of([1.0, 1.0, 1.0]).words == "95 %: 1.00 to 1.00"


def test_gain_over_serial_lets_the_last_job_run_on_alone() -> None:
    assert gain_over_serial((1.0, 1.0)) == pytest.approx(1.5)
    assert gain_over_serial((0.5, 0.5)) == pytest.approx(0.75)
    # The second ends at 2, when the first has 0.2 left: 2.2.
    assert gain_over_serial((0.4, 0.5)) == pytest.approx(1.5 / 2.1)


def test_one_peak_may_be_flat_and_two_are_seen() -> None:
    assert is_unimodal([0.5, 1.0, 1.0, 0.2])
    assert is_unimodal([1.0, 0.9, 0.8])
    assert not is_unimodal([1.0, 0.9, 0.95])
    assert not is_unimodal([0.9, 0.8, 1.0])


def test_a_bent_law_keeps_the_ends_and_lies_on_its_side() -> None:
    args = (0.8, 1.0, 0.9)
    for limit in (0.1, 0.5, 0.9):
        law = shared_slowdown(*args, limit, 1.9)
        assert bent_slowdown(*args, limit, 1.9, 1.0) == law
        for power, is_faster in ((2.0, True), (0.5, False)):
            bent = bent_slowdown(*args, limit, 1.9, power)
            if limit in (0.1, 0.9):
                assert bent == pytest.approx(law)
            else:
                assert (bent < law) is is_faster


def test_a_limit_changes_nothing_above_what_a_job_uses() -> None:
    line = limited("LLaMA", "ResNet-50", "measured")
    assert len(line) == len(LIMITS)
    assert line[-1] == line[-2]
    assert max(line) == line[4] > line[-1]


def test_pairs_count_themselves() -> None:
    found = PairShares([PairRun("ResNet-50", b).play() for b in ("EfficientNet", "LLaMA")])
    assert found.free("straight line") == 0.5
    assert found.best("straight line") == 1.0
    assert found.evened() == 1.0
    assert len(MODELS) == 12


def test_the_example_of_section_4_1_falls_to_six_hours() -> None:
    found = ExampleRun().play()
    assert found["free"] == pytest.approx(7.5)
    # The search takes minutes of the ten hours.
    assert found["found"] == pytest.approx(6.0, rel=0.002)
    # B ends at 5 h; A, half done, needs 2.5 h more: 7.5 h, a mean of 6.25 h.
    assert found["free through the world"] == pytest.approx(6.25)
    assert found["found through the world"] < 5.76


def test_early_exit_finds_what_a_full_search_does_sooner() -> None:
    early, full = (SetRun("JC7", manner).play() for manner in ("early exit", "full search"))
    assert early["members"] == len(SETS["JC7"])
    assert early["seconds"] < full["seconds"]
    assert early["steps"] < full["steps"]
    assert early["gain"] == pytest.approx(full["gain"], rel=0.01)
    free = SetRun("JC7", "free competition").play()
    assert free["steps"] == 0
    assert early["jct"] < free["jct"] < SetRun("JC7", "serial").play()["jct"]


def test_one_run_counts_deadlines_by_class_and_work_over_time() -> None:
    numbers = gimbal_run(GimbalWorkload("philly", 0, "", 30), UPPERS[0].under()).play()
    assert numbers["met"] == sum(numbers[f"met {c}"] for c in STAND_INS)
    assert numbers["q:0"] <= numbers["q:30"] <= numbers["q:59"]
    assert numbers["jct"] == pytest.approx((numbers["jct longer"] + numbers["jct shorter"]) / 2)
    assert 0 < numbers["peak"] == max(numbers[f"t:{i}"] for i in range(60))


def test_every_policy_of_the_study_can_be_made() -> None:
    for upper in (*UPPERS, BOLD):
        texts = [upper.alone, upper.relaxed_alone, upper.equal_under]
        texts += [upper.under(step) for step in STEPS]
        policies = [parse_policy(text) for text in texts]
        assert len(set(map(str, policies))) == len(texts)


class Guesses(Results):
    """Answers at once, alike whatever is asked: nothing gains anything."""

    def play(self, trials: object) -> list[Numbers]:
        return [_Ones() for _ in trials]  # type: ignore[attr-defined]


class _Ones(dict[str, float]):
    def __missing__(self, key: str) -> float:
        return 60.0 if key in ("q:", "t:") else 1.0


@pytest.mark.parametrize("effort", ["quick", "default"])
def test_every_row_is_there_once_and_misses_say_why(effort: str) -> None:
    reproduction = paper.reproduce(Scope(None, effort), Guesses())
    names = [(row.part, row.what) for row in reproduction.claims]
    assert len(set(names)) == len(names)
    missed = [row for row in reproduction.claims if row.verdict == MISSED]
    assert missed
    assert all(row.why for row in missed)
    published = {row.published for row in reproduction.claims}
    assert {1.28, 90, 110, 4.5, 4.05, 480.0, 250.0, 0.994, 7.5, 6.0} <= published
    if effort == "default":
        assert {1.26, 3.75, 5.8, 233, 17.6, 15.9, 16.0} <= published
    assert any("GENERATED" in note for note in reproduction.notes)
    for picture in reproduction.plots:
        assert picture.draw().axes


def test_each_variation_changes_one_thing() -> None:
    varied = all_variations(GimbalExperiment(Scope(None, "quick"), Guesses()))
    base = varied["as above"]
    for words, run in varied.items():
        changed = [
            name
            for mine, other in ((run.options, base.options), (run.workload, base.workload))
            for name in (f.name for f in fields(mine))
            if getattr(mine, name) != getattr(other, name)
        ]
        assert len(changed) == (words != "as above"), words
