"""The A-SRPT paper: its jobs are what it says, its predictions know no future, its rows hold."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail.traces.transform import offered_load
from papers import a_srpt
from papers.a_srpt import workloads as a_srpt_workload
from papers.a_srpt.checks import ASrptBound, LogRun, PlacementRun
from papers.a_srpt.claims import held
from papers.a_srpt.experiments import (
    BASELINES,
    KNOWN,
    OURS,
    ASrptExperiment,
    ASrptRun,
    Sweep,
)
from papers.a_srpt.workloads import ASrptCluster, ASrptWorkload, models_on, shortest_longest
from papers.frame.claim import MISSED, WITHIN
from papers.frame.experiment import Numbers, Playable, Results, listed
from papers.frame.paper import paper_called
from papers.frame.scope import Scope
from patience import UNHURRIED_S

SMALL = ASrptWorkload(2000, 300, load=1.0, gpus=80)
CLUSTER = ASrptCluster(servers=10)


@pytest.mark.parametrize("single", [0.0, 0.4, 0.8])
def test_the_share_on_one_gpu_is_what_was_asked_for(single: float) -> None:
    whole = a_srpt_workload._whole(ASrptWorkload(2000, 0, single=single))
    assert (whole.jobs.gpus == 1).mean() == pytest.approx(single, abs=0.05)


def test_a_group_keeps_its_model_and_its_gpus_and_has_a_plan() -> None:
    jobs = SMALL.trace().jobs
    of_group: dict[str, set[tuple[str, int]]] = {}
    for group, kind in zip(
        jobs.recurrence.texts(),
        zip(jobs.model.texts(), jobs.gpus.tolist(), strict=True),
        strict=True,
    ):
        of_group.setdefault(group, set()).add(kind)
        assert kind[0] in models_on(kind[1])
    assert {len(kinds) for kinds in of_group.values()} == {1}


def test_only_kept_loads_stay_when_fewer_jobs_have_one_gpu() -> None:
    assert offered_load(SMALL.trace(), 80) == pytest.approx(1.0)
    wide = replace(SMALL, single=0.0)
    assert offered_load(wide.trace(), 80) > 1.5
    assert offered_load(replace(wide, as_asked=True).trace(), 80) == pytest.approx(1.0)


def test_the_testbed_is_a_tenth_of_the_trace_in_time() -> None:
    slow = replace(SMALL, load=0.0, widest=8)
    fast = replace(slow, faster=10.0)
    assert fast.trace().duration_s == pytest.approx(slow.trace().duration_s / 10)
    assert fast.trace().jobs.submit_s == pytest.approx(slow.trace().jobs.submit_s / 10)
    assert slow.trace().jobs.gpus.max() <= 8


def test_predictions_know_only_what_ended_before_the_last_fifth() -> None:
    jobs = replace(SMALL, load=0.0)
    taught = jobs.taught("mean")
    first = int(jobs.rows()[0])
    said = [taught.length_s(job, 0.0) for job in range(jobs.jobs)]
    trace = a_srpt_workload._whole(jobs._all())
    cut = round(jobs.total * 0.8)
    over = trace.jobs.submit_s + trace.duration_s <= trace.jobs.submit_s[cut]
    before = over & (np.arange(len(trace)) < cut)
    group = trace.jobs.recurrence.codes
    for job in (0, 7, 150):
        like = trace.duration_s[before & (group == group[first + job])]
        assert said[job] == pytest.approx(like.mean() if len(like) else 0.0)
    taught.ended(0, 500.0, "completed", 1.0)
    fresh = jobs.taught("mean")
    assert [fresh.length_s(job, 0.0) for job in range(jobs.jobs)] == said


@pytest.mark.parametrize("method", ["mean", "median", "forest", "boosted"])
def test_every_method_is_nearer_than_saying_nothing(method: str) -> None:
    jobs = replace(SMALL, load=0.0, recurrent=0.9)
    taught = jobs.taught(method)
    said = np.array([taught.length_s(job, 0.0) for job in range(jobs.jobs)])
    truth = jobs.trace().duration_s
    assert np.abs(said - truth).mean() < truth.mean()


def test_learning_goes_on_in_the_run() -> None:
    jobs = replace(SMALL, recurrent=0.9)
    run = ASrptRun(jobs, OURS, "taught:mean", CLUSTER).play()
    still = jobs.taught("mean")
    at_once = np.mean([still.length_s(job, 0.0) <= 0 for job in range(jobs.jobs)])
    assert run["unseen"] < at_once


@pytest.mark.parametrize("policy", [OURS, *BASELINES])
def test_no_policy_is_below_the_bound(policy: str) -> None:
    least = ASrptBound(SMALL, CLUSTER).play()
    run = ASrptRun(SMALL, policy, KNOWN, CLUSTER).play()
    assert run["flow_s"] >= least["flow_s"]
    assert run["completion_s"] >= least["completion_s"]
    assert run["makespan_s"] > 0


def test_a_slower_network_spreads_no_faster() -> None:
    for gpus in (8, 32):
        for model in models_on(gpus):
            slow, fast = (shortest_longest(model, gpus, g)[1] for g in (1.0, 50.0))
            assert slow >= fast


def test_heavy_edge_is_never_better_than_the_programme() -> None:
    for case in range(3):
        found = PlacementRun("vgg19", 8, case, UNHURRIED_S).play()
        assert found["proven"]
        assert found["greedy_ms"] >= found["best_ms"] * (1 - 1e-3)
    free = PlacementRun("gpt-175b", 64, 0, UNHURRIED_S).free()
    assert sum(free) == 64
    assert all(here % 8 == 0 for here in free)


def test_a_gain_is_held_to_what_is_left_of_the_total() -> None:
    assert list(held(0.6)) == pytest.approx([50.0, 70.0])


def test_gains_are_over_the_mean_of_the_seeds() -> None:
    sweep = Sweep("", "", ((1.0, SMALL, CLUSTER),), KNOWN, (OURS, "spjf"), 2)
    flow = {OURS: (1.0, 3.0), "spjf": (6.0, 10.0)}
    results = Results(
        known={
            run: {"flow_s": total}
            for p in sweep.policies
            for run, total in zip(sweep.runs(1.0, p), flow[p], strict=True)
        }
    )
    experiment = ASrptExperiment(Scope(None, "quick"), results)
    assert experiment.gains(sweep, 1.0, ["spjf"]) == {"spjf": pytest.approx(0.75)}


def test_the_study_is_known_by_name() -> None:
    assert paper_called("a-srpt") is a_srpt.paper


def test_full_plays_the_published_sizes() -> None:
    made = ASrptExperiment(Scope(None, "full"), Results())
    assert made.sweeps["jobs"].at == (37_500, 75_000, 150_000)
    assert (made.base.total, made.base.jobs, made.cluster.gpus) == (758_223, 75_000, 2000)
    assert {1.0, 50.0} <= set(made.sweeps["nic"].at)


@pytest.mark.slow
def test_quick_explains_every_miss(data_dir: Path) -> None:
    found = a_srpt.paper.reproduce(Scope(data_dir, "quick"), Results())
    assert all(row.why for row in found.claims if row.verdict == MISSED)
    for picture in found.plots:
        assert picture.draw().axes


class Told(Results):
    """Trials of which everything is known beforehand: A-SRPT's total is a third less."""

    def play(self, runs: Sequence[Playable]) -> list[Numbers]:
        return [self._numbers(run) for run in runs]

    def _numbers(self, run: Playable) -> Numbers:
        if isinstance(run, PlacementRun):
            ms = {"greedy_ms": 1.5, "best_ms": 1.0, "greedy_took_ms": 1.0, "best_took_ms": 9.0}
            return ms | {"refined_ms": 1.0, "proven": 1.0}
        if isinstance(run, LogRun):
            return {"mean_s": 5.0, "near": 0.5}
        if isinstance(run, ASrptBound):
            return {"flow_s": 90.0, "completion_s": 900.0}
        assert isinstance(run, ASrptRun)
        total = 100.0 if run.policy.startswith(OURS) else 150.0
        names = ("error_iterations", "median_error_iterations", "near", "unseen", "stretch")
        known = dict.fromkeys((*names, "heavy ran", "light ran"), 1.0)
        known |= listed("off", (q / 100 for q in range(0, 101, 2)))
        return known | {
            "flow_s": total,
            "completion_s": 10 * total,
            "makespan_s": 300.0 - total,
            "waited_s": 0.0,
        }


def test_verdicts_follow_from_the_numbers() -> None:
    found = a_srpt.paper.reproduce(Scope(None, "default"), Told())
    rows = {(row.part.partition(":")[0], row.what): row for row in found.claims}
    assert rows["Figure 5", "A-SRPT less than the worst baseline"].verdict == WITHIN
    assert rows["Figure 6", "least over baselines and sizes"].verdict == WITHIN
    assert rows["Figure 6", "most over baselines and sizes"].verdict == MISSED
    assert rows["Figure 7", "80 %: less than the best baseline"].ours == pytest.approx(100 / 3)
    assert rows["Figure 8", "1 Gbit/s: less than the worst baseline"].verdict == MISSED
    assert rows["Figure 9", "A-SRPT, forest"].ours == pytest.approx(1.0)
    assert rows["Table II", "Heavy-Edge over the shortest"].verdict == MISSED
    assert rows["Theorem 1", "at most, measured, forest"].ours == pytest.approx(1000 / 900)
    assert not any(row.part.startswith("Prediction on a real log") for row in found.claims)
    assert any("dirlab" in note for note in found.notes)


def test_every_picture_can_be_drawn() -> None:
    found = a_srpt.paper.reproduce(Scope(None, "quick"), Told())
    for picture in found.plots:
        assert picture.draw().axes
