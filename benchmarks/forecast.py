"""How long predictions take to train and how far they are off, on recurrent jobs like PAI's.

    python -m benchmarks.forecast [--jobs 700000] [--plain-forest] [--sweep]

A trace of --jobs jobs and a fifth of the time more: those that ended before the later ones came
teach, the later ones are predicted and teach nothing. `train s` (by the clock) and `CPU s` are all
of training, from the columns of a trace to a predictor, on one core. `sklearn forest` is the
library's own random forest on group and user; `forest` is the same on weighted pairs
(`forecast/forest.py`). --sweep prints a table for each share of recurrent jobs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np

from dovetail.core.job import Floats
from dovetail.core.trace import COMPLETED, Trace
from dovetail.forecast.accuracy import moments_of
from dovetail.forecast.boosted import Boosted
from dovetail.forecast.forest import Forest
from dovetail.forecast.groups import GroupLengths, MeanOfGroup, MedianOfGroup
from dovetail.forecast.submissions import Submissions
from dovetail.traces.generate import Recipe, generate
from papers.a_srpt.whole_history import study

Guess = Callable[[int], float]


def learned(learner: GroupLengths, trace: Trace, first: int, cut_s: float) -> Guess:
    """Returns a learner's guesses after the jobs that ended by the cut."""
    time_s, jobs, over = moments_of(trace.take(np.arange(first)), cut_s)
    ran_s, good = trace.duration_s.tolist(), (trace.end == COMPLETED).tolist()
    for now, job in zip(time_s[over].tolist(), jobs[over].tolist(), strict=True):
        learner.learn(job, ran_s[job], good[job], now)
    learner.train()
    return lambda job: learner.guess_s(job, cut_s)


def ours(known: Submissions, trace: Trace, first: int, cut_s: float) -> Guess:
    """Returns the guesses of the boosted forecast."""
    learner = Boosted(known, 0)
    moments = moments_of(trace.take(np.arange(first)), cut_s)
    study(learner, moments, trace.duration_s, trace.end == COMPLETED)
    return lambda job: learner.guess_s(job, cut_s)


def plain_forest(known: Submissions, trace: Trace, first: int, cut_s: float) -> Guess:
    """Returns the guesses of the library's forest, 0 for groups it has not seen."""
    from sklearn.ensemble import RandomForestRegressor

    _, jobs, over = moments_of(trace.take(np.arange(first)), cut_s)
    ended = jobs[over]
    features = np.stack((known.key, known.user), axis=1)
    model = RandomForestRegressor(100, random_state=0, n_jobs=1)
    model.fit(features[ended], trace.duration_s[ended])
    later = np.arange(first, len(trace))
    said = np.where(np.isin(known.key[later], known.key[ended]), model.predict(features[later]), 0)
    return lambda job: float(said[job - first])


def measured(trace: Trace, first: int, *, plain: bool) -> None:
    """Prints a row for each method."""
    known, cut_s = Submissions(trace.jobs), float(trace.jobs.submit_s[first])
    methods: dict[str, Callable[[], Guess]] = {
        "boosted": lambda: ours(Submissions(trace.jobs), trace, first, cut_s),
        "mean": lambda: learned(MeanOfGroup(known), trace, first, cut_s),
        "median": lambda: learned(MedianOfGroup(known), trace, first, cut_s),
        "forest": lambda: learned(Forest(known, 0), trace, first, cut_s),
    }
    if plain:
        methods["sklearn forest"] = lambda: plain_forest(known, trace, first, cut_s)
    later = np.arange(first, len(trace))
    truth_s = trace.duration_s[later]
    print(
        f"{'':16}{'train s':>9}{'CPU s':>8}{'mean error s':>14}{'median s':>10}{'within 10 %':>13}"
    )
    for name, method in methods.items():
        began, used = perf_counter(), process_time()
        guess = method()
        took_s, used_s = perf_counter() - began, process_time() - used
        said: Floats = np.array([guess(job) for job in later.tolist()])
        off = np.abs(said - truth_s)
        near = float((off <= 0.1 * truth_s).mean())
        errors = f"{off.mean():14,.0f}{np.median(off):10,.0f}{near:13.0%}"
        print(f"{name:16}{took_s:9.1f}{used_s:8.1f}{errors}", flush=True)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=700_000, help="jobs that teach, nearly")
    parser.add_argument("--plain-forest", action="store_true", help="time the library's too")
    parser.add_argument("--sweep", action="store_true")
    said = parser.parse_args()
    warm = generate(Recipe("pai-like", 2000, 5.0))
    ours(Submissions(warm.jobs), warm, 1500, float(warm.jobs.submit_s[1500]))  # compiles
    for recurrent in (0.0, 0.3, 0.6, 0.9) if said.sweep else (0.65,):
        print(f"\n{said.jobs:,} jobs, {recurrent:.0%} in groups of five or more", flush=True)
        jobs = said.jobs * 5 // 4
        recipe = Recipe("pai-like", jobs, jobs / 700_000 * 60.0, recurrent=recurrent)
        measured(generate(recipe), said.jobs, plain=said.plain_forest)


if __name__ == "__main__":
    main()
