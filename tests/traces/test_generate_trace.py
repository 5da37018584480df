"""Generated traces keep the statistics they promise, and depend on nothing but the recipe."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dovetail.core.errors import InputError
from dovetail.core.trace import Trace
from dovetail.traces import arrivals
from dovetail.traces.canonical import write_trace
from dovetail.traces.generate import KINDS, Recipe, generate


def load_of(trace: Trace, gpus: int, days: float) -> float:
    return float((trace.jobs.gpus * trace.duration_s).sum() / (gpus * days * 86400.0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_recipe_gives_the_same_bytes_in_another_process(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "here.csv"
    write_trace(generate(Recipe(kind, 500, 7.0, 5)), path)
    there = tmp_path / "there.csv"
    code = (
        "import sys\n"
        "from dovetail.traces.canonical import write_trace\n"
        "from dovetail.traces.generate import Recipe, generate\n"
        "write_trace(generate(Recipe(sys.argv[1], 500, 7.0, 5)), sys.argv[2])\n"
    )
    subprocess.run([sys.executable, "-c", code, kind, str(there)], check=True)
    assert there.read_bytes() == path.read_bytes()
    other = generate(Recipe(kind, 500, 7.0, 6))
    assert other.duration_s.tolist() != generate(Recipe(kind, 500, 7.0, 5)).duration_s.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("jobs", [1, 2, 7, 1000])
def test_exactly_the_jobs_asked_for_inside_the_days(kind: str, jobs: int) -> None:
    trace = generate(Recipe(kind, jobs, 10.0, 1))
    assert len(trace) == jobs
    assert trace.jobs.submit_s.min() >= 0
    assert trace.jobs.submit_s.max() <= 10 * 86400


@pytest.mark.parametrize("load", [0.5, 0.95, 1.2])
@pytest.mark.parametrize("kind", ["philly-like", "pai-like", "poisson"])
def test_the_load_asked_for_is_offered(kind: str, load: float) -> None:
    trace = generate(Recipe(kind, 5000, 10.0, 2, load=load, cluster_gpus=200))
    assert load_of(trace, 200, 10.0) == pytest.approx(load, rel=0.01)
    assert trace.jobs.gpus.max() <= 200


def test_a_load_out_of_reach_is_refused() -> None:
    with pytest.raises(InputError, match=r"load: 10 jobs reach 0\.\d\d at most"):
        generate(Recipe("philly-like", 10, 30.0, 0, load=1.0, cluster_gpus=6500))


def test_options_do_not_change_the_jobs_they_are_added_to() -> None:
    plain = generate(Recipe("philly-like", 800, 10.0, 3))
    full = generate(
        Recipe("philly-like", 800, 10.0, 3, deadlines=1.0, time_limits=0.5, models=(("m", 64),))
    )
    assert full.duration_s.tolist() == plain.duration_s.tolist()
    assert full.jobs.submit_s.tolist() == plain.jobs.submit_s.tolist()
    assert set(full.jobs.model.texts()) == {"m"}
    factor = (full.jobs.deadline_s - full.jobs.submit_s) / full.duration_s
    assert 1.5 <= factor.min() < 1.6 < 2.4 < factor.max() <= 2.5
    limited = np.isfinite(full.jobs.time_limit_s)
    assert 0.4 < limited.mean() < 0.6
    assert (full.jobs.time_limit_s >= full.duration_s)[limited].all()


def test_philly_like_keeps_philly_s_sizes_run_times_and_ends() -> None:
    trace = generate(Recipe("philly-like", 50_000, 129.0, 0, bursts=0.0))
    jobs = trace.jobs
    assert (jobs.gpus == 1).mean() == pytest.approx(0.88, abs=0.01)
    assert (jobs.gpus == 8).mean() == pytest.approx(0.043, abs=0.005)
    assert np.median(trace.duration_s) == pytest.approx(1088, rel=0.05)
    assert trace.duration_s.mean() == pytest.approx(26_050, rel=0.15)
    assert trace.duration_s.max() <= 4_240_676
    ends = np.bincount(trace.end, minlength=4) / len(trace)
    assert ends.tolist() == pytest.approx([0.60, 0.25, 0.15, 0.0], abs=0.05)
    # Killed jobs are few, but hold more GPU time than failed ones or as much (published shares
    # of GPU time by end: 0.32, 0.39, 0.29).
    hours = np.bincount(trace.end, weights=jobs.gpus * trace.duration_s)
    assert (hours / hours.sum()).tolist() == pytest.approx([0.32, 0.3, 0.38], abs=0.06)
    assert len(jobs.queue.names) == 9
    assert np.bincount(jobs.queue.codes).max() / len(trace) == pytest.approx(0.52, abs=0.03)


def test_days_nights_and_weekends_differ() -> None:
    submit = arrivals.spread(200_000, 28.0, np.random.default_rng(0))
    hour = (submit // 3600 % 24).astype(int)
    by_hour = np.bincount(hour) / len(submit) * 24
    assert by_hour[15] == pytest.approx(1.28, abs=0.04)
    assert by_hour[3] == pytest.approx(0.72, abs=0.04)
    by_day = np.bincount((submit // 86400 % 7).astype(int)) / len(submit) * 7
    assert by_day.round(1).tolist() == [1.0, 1.2, 1.3, 1.3, 1.3, 0.5, 0.5]


def test_bursts_make_hours_with_many_times_the_mean() -> None:
    def busiest(bursts: float) -> float:
        made = arrivals.cyclic(100_000, 30.0, np.random.default_rng(1), bursts=bursts)
        by_hour = np.bincount((made.submit_s // 3600).astype(int))
        return float(by_hour.max() / by_hour.mean())

    assert busiest(0.0) < 2.5
    assert busiest(1.0) > 5.0


def waiting_at_peak(trace: Trace, gpus: int) -> int:
    """Returns the longest queue when jobs start in order of arrival on one pool of GPUs."""
    import heapq

    free, head, peak = gpus, 0, 0
    running: list[tuple[float, int]] = []
    submit, sizes, seconds = (
        x.tolist() for x in (trace.jobs.submit_s, trace.jobs.gpus, trace.duration_s)
    )
    now = 0.0
    for i, at in enumerate(submit):
        while head < i:
            if sizes[head] <= free:
                free -= sizes[head]
                heapq.heappush(running, (max(now, submit[head]) + seconds[head], sizes[head]))
                head += 1
            elif running[0][0] <= at:
                now, size = heapq.heappop(running)
                free += size
            else:
                break
        now = at
        while running and running[0][0] <= at:
            free += heapq.heappop(running)[1]
        peak = max(peak, i - head + 1)
    return peak


@pytest.mark.parametrize("load", [0.95, 1.2])
def test_a_month_of_100_000_jobs_has_thousands_waiting_at_its_peak(load: float) -> None:
    recipe = Recipe("philly-like", 100_000, 30.0, 0, load=load, cluster_gpus=6500, bursts=1.5)
    trace = generate(recipe)
    assert waiting_at_peak(trace, 6500) >= 5000


def test_pai_like_jobs_recur() -> None:
    trace = generate(Recipe("pai-like", 40_000, 60.0, 0))
    groups = np.bincount(trace.jobs.recurrence.codes)
    assert groups[groups >= 5].sum() / 40_000 == pytest.approx(0.65, abs=0.005)
    # The largest groups weigh on the jobs' own median, so each group counts once here.
    _, first = np.unique(trace.jobs.recurrence.codes, return_index=True)
    assert np.median(trace.duration_s[first]) == pytest.approx(481, rel=0.1)
    assert trace.duration_s[first].mean() == pytest.approx(4787, rel=0.15)
    assert trace.jobs.gpus.max() == 8
    big = int(np.argmax(groups))
    chosen = trace.jobs.recurrence.codes == big
    log_times = np.log(trace.duration_s[chosen])
    assert log_times.std() == pytest.approx(0.2, abs=0.05)
    assert len({trace.jobs.user[i] for i in np.flatnonzero(chosen)[:20]}) == 1
    rounded = trace.counts["adjusted: fraction of a GPU rounded up"]
    assert rounded / 40_000 == pytest.approx(0.62, abs=0.05)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"kind": "filly-like"}, "did you mean 'philly-like'"),
        ({"jobs": 0}, "jobs: 0 is not between 1 and"),
        ({"days": 0.0}, "days: 0.0 is not between"),
        ({"seed": -1}, "seed: -1 is negative"),
        ({"deadlines": 1.1}, "is not a share"),
        ({"load": 0.9}, "needs the cluster it is offered to"),
        ({"cluster_gpus": -4}, "-4 GPUs are not enough"),
        ({"bursts": float("nan")}, "bursts: nan is not between"),
        ({"kind": "poisson", "recurrent": 0.5}, "'poisson' has no groups of jobs"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(recipe: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe(**recipe)  # type: ignore[arg-type]
