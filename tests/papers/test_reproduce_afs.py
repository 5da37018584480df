"""The AFS paper: its workload keeps what the traces say, and its numbers come out anew."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from dovetail.physics.zoo.models import zoo
from papers import afs
from papers.afs import experiments as afs_plan
from papers.afs import workloads as afs_workload
from papers.afs.claims import MODERATE_H
from papers.afs.experiments import AUTHORS, AfsCase, AfsExperiment, AfsRun, ToyRun, pooled
from papers.afs.workloads import TABLE_3, AfsWorkload, available
from papers.frame.claim import MISSED
from papers.frame.experiment import Results, sequence
from papers.frame.scope import Scope

SMALL = AfsWorkload("like 9", 9)


@pytest.fixture
def small_months(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the generated months so small that a whole study takes seconds."""
    small = ((9, 0.3, 50), (1, 0.4, 50))
    for module in (afs_plan, afs_workload):
        monkeypatch.setattr(module, "GENERATED", small)
    afs_workload._jobs_of.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def forget() -> object:
    yield
    afs_workload._jobs_of.cache_clear()


def real(data_dir: Path, name: str) -> AfsWorkload:
    vc = next(vc for vc in TABLE_3 if vc.name == name)
    return AfsWorkload(vc.name, vc.number, str(data_dir / vc.file))


def hours(run: AfsRun) -> float:
    return run.play()["avg_jct_s"] / 3600


def test_the_toy_of_appendix_a_has_its_corrected_means() -> None:
    assert ToyRun("srtf").play() == {"avg_jct_h": pytest.approx(1.75)}
    assert ToyRun("max-min").play() == {"avg_jct_h": pytest.approx(2.0)}


@pytest.mark.parametrize("hours", [1.1, 1.3, 1.5, 1.7, 1.99])
def test_equal_shares_beat_srtf_whenever_others_follow(hours: float) -> None:
    even, srtf = (ToyRun(p, hours).play()["avg_jct_h"] for p in ("max-min", "srtf"))
    assert even < srtf


def test_drawn_models_keep_lengths_and_can_use_the_gpus(data_dir: Path) -> None:
    workload = real(data_dir, "2869ce")
    given = replace(workload, models="file").trace()
    one, two = (replace(workload, seed=seed).trace() for seed in (1, 2))
    for drawn in (one, two):
        assert (drawn.duration_s == given.duration_s).all()
        most = np.array([zoo()[name].max_gpus.value for name in drawn.jobs.model.texts()])
        assert (most >= drawn.jobs.gpus).all()
    assert one.jobs.model.texts() != two.jobs.model.texts()
    assert set(one.jobs.model.texts()) == set(afs_workload.MODELS)


def test_a_job_alone_takes_its_wall_time_whatever_its_model(data_dir: Path) -> None:
    workload = real(data_dir, "ed69ec")
    for seed in (1, 2):
        run = AfsRun(replace(workload, seed=seed), "fifo", pooled(400), detailed=True)
        assert sequence(run.play(), "jct") == pytest.approx(workload.trace().duration_s.tolist())


def test_figure_2a_comes_out_with_the_authors_models(data_dir: Path) -> None:
    workload = replace(real(data_dir, "2869ce"), models="file")
    found = {p: hours(AfsRun(workload, p, pooled())) for p in MODERATE_H}
    assert found == {
        "srtf": pytest.approx(31.1, abs=0.05),
        "srsf": pytest.approx(32.8, abs=0.1),
        "max-min": pytest.approx(18.3, abs=0.05),
        "afs-l": pytest.approx(15.2, abs=0.05),
    }


def test_the_one_trace_that_gains_by_larger_sizes_gains_as_published(data_dir: Path) -> None:
    workload = replace(real(data_dir, "ed69ec"), models="file")
    srtf, larger, srsf, larger_srsf = (
        hours(AfsRun(workload, p, pooled())) for p in ("srtf", "srtf-max", "srsf", "srsf-max")
    )
    assert srtf / larger == pytest.approx(1.21, abs=0.01)
    assert srsf / larger_srsf == pytest.approx(1.17, abs=0.01)


def test_day_116_begins_with_the_burst_that_the_paper_tells_of(data_dir: Path) -> None:
    submit = replace(real(data_dir, "11cb48"), day=116).trace().jobs.submit_s
    at_once = np.searchsorted(submit, submit + 180.0) - np.arange(len(submit))
    assert int(at_once.max()) == 72


def test_sizes_give_the_load_asked_for_or_hold_the_widest_job(data_dir: Path) -> None:
    workload = real(data_dir, "0e4a51")
    assert [4 * workload.nodes_for(load) for load in (0.7, 1.0, 1.5)] == [104, 72, 48]
    wide = real(data_dir, "e13805")
    assert 4 * wide.nodes_for(100.0) == int(wide.trace().jobs.gpus.max()) == 32


def test_a_detailed_trial_keeps_each_job_and_the_metrics(small_months: None) -> None:
    kept = AfsRun(SMALL, "srtf", pooled(2), detailed=True).play()
    assert fmean(sequence(kept, "jct")) == pytest.approx(kept["avg_jct_s"])
    for name, mean in (("QL", "avg_queue_length"), ("CE", "cluster_efficiency")):
        assert fmean(sequence(kept, name)) == pytest.approx(kept[mean], rel=1e-6)
    assert kept["avg_queue_length"] > 0
    lasted = kept["makespan_s"]
    assert sum(v for k, v in kept.items() if k.startswith("gpu:")) == pytest.approx(8 * lasted)


def test_a_draw_is_won_unless_another_is_better_by_more_than_a_tie() -> None:
    case = AfsCase(SMALL, 16, ("afs-l", "srtf"), (0, 1, 2))
    mean = {"afs-l": (1.0, 1.005, 1.2), "srtf": (2.0, 1.0, 1.0)}
    results = Results(
        known={case.run(p, d): {"avg_jct_s": mean[p][d]} for p in case.policies for d in case.draws}
    )
    case = replace(case, results=results)
    assert case.won("afs-l", ("srtf",)) == 2
    assert case.mean("srtf") == pytest.approx(4 / 3)
    assert case.first("srtf") == 2.0


def test_without_traces_months_are_generated_and_called_so(small_months: None) -> None:
    found = afs.paper.reproduce(Scope(None, "quick"), Results(processes=1))
    parts = {row.part for row in found.claims if row.part.startswith(("Figure 2", "Figure 5,"))}
    assert len(parts) == 4
    assert all("generated month" in part for part in parts)
    held = {r.part.partition(":")[0] for r in found.claims if r.published is not None and r.band}
    assert held == {"Appendix A"}
    assert any("TuftsNATLab/PCS" in note for note in found.notes)
    for picture in found.plots:
        assert picture.draw().axes


def test_quick_plays_the_authors_draw_of_two_traces(data_dir: Path) -> None:
    made = AfsExperiment(Scope(data_dir, "quick"), Results())
    assert [c.workload.number for c in made.cases] == [4, 9]
    assert {c.draws for c in made.cases} == {(AUTHORS,)}
    assert len(made.clusters) == len(available(Scope(data_dir)))


def test_full_plays_every_trace_at_every_load_with_twenty_draws(data_dir: Path) -> None:
    made = AfsExperiment(Scope(data_dir, "full"), Results())
    numbers = {vc.number for vc, _ in made.clusters}
    assert {(c.workload.number, c.load) for c in made.cases} == {
        (n, load) for n in numbers for load in (None, 0.7, 1.0, 1.5)
    }
    assert {len(c.draws) for c in made.cases} == {21}


@pytest.mark.slow
def test_quick_misses_nothing_but_what_is_explained(data_dir: Path) -> None:
    found = afs.paper.reproduce(Scope(data_dir, "quick"), Results())
    missed = [row for row in found.claims if row.verdict == MISSED]
    assert all(row.why for row in missed)
    for picture in found.plots:
        assert picture.draw().axes
