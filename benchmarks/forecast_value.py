"""What forecasts buy in completion time: mean JCT over that of the same policy with known lengths.

    python -m benchmarks.forecast_value [--keep FILE] [--only FORECAST ...]

The nine windows of `python -m papers systems`: three of each log, 120 jobs, load 0.9, 32 GPUs, one
seed. A forecast has learned from the HISTORY jobs of the log before the window that had ended by
then, and goes on learning in it. `,expected` tells the policy what is left of a job as the mean of
a distribution. Ratios are geometric means over windows, with 95 % intervals. --keep stores every
run in a file, and plays only those that it does not have.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from dovetail.core.beliefs import DoneOf, Forecast
from dovetail.core.errors import InputError
from dovetail.core.job import Ints, JobTable
from dovetail.core.length_distribution import LengthDistribution
from dovetail.core.policy import parse_policy
from dovetail.core.trace import ENDS, Trace
from dovetail.forecast.accuracy import moments_of
from dovetail.forecast.expected import Expected
from dovetail.forecast.forecasts import TimeLimitForecast
from dovetail.forecast.predicted import Predicted
from dovetail.study.options import adopted
from dovetail.study.run import build_scene
from papers.frame.experiment import play_scene
from papers.systems.experiments import BASE
from papers.systems.results import HEAVY, geometric
from papers.systems.workloads import REAL, WindowWorkload, usable

WINDOWS, JOBS, SEED = 3, 120, 0
HISTORY = 3000
POLICIES = {
    "sjf": "sjf",
    "a-srpt": "a-srpt",
    "srtf": "srtf",
    "afs-l": "afs-l",
    "gittins": "gittins:size-estimates=true",
}
SOURCES = ("boosted", "forest", "median", "limit")
FORMS = ("", ",expected")
KNOWN = "known"


@dataclass(frozen=True)
class Past:
    """A log up to the end of a window; the window's jobs are the rows from `first` on."""

    trace: Trace
    first: int

    @staticmethod
    def of(workload: WindowWorkload) -> Past:
        """Returns the jobs of a window and the HISTORY ones before it."""
        log = usable(workload.source, workload.data)
        rows: Ints = workload.rows(len(log))
        start = max(0, int(rows[0]) - HISTORY)
        return Past(log.take(np.arange(start, int(rows[-1]) + 1)), int(rows[0]) - start)

    def forecast(self, source: str) -> Forecast:
        """Returns a fresh forecast of a source, by the method of `predicted` or by limits."""
        jobs = self.trace.jobs
        return TimeLimitForecast(jobs) if source == "limit" else Predicted(jobs, source, SEED)


@lru_cache(maxsize=4)
def _learned(workload: WindowWorkload, told: str) -> Forecast:
    """Returns a forecast that has lived through the jobs before a window."""
    past = Past.of(workload)
    source, comma, _ = told.partition(",")
    forecast = past.forecast(source)
    if comma:
        forecast = Expected(forecast, past.trace.jobs)
    jobs, ran_s = past.trace.jobs, past.trace.duration_s.tolist()
    until_s = float(jobs.submit_s[past.first])
    moments = moments_of(past.trace.take(np.arange(past.first)), until_s)
    for now, job, over in zip(*(column.tolist() for column in moments), strict=True):
        if over:
            forecast.ended(job, ran_s[job], ENDS[past.trace.end[job]], now)
        else:
            forecast.length_s(job, now)
    return forecast


class Taught:
    """What a window is told: by a forecast that has learned from the jobs before it."""

    knows = frozenset({"length"})
    learns = True

    def __init__(self, forecast: Forecast, past: Past) -> None:
        self._forecast, self._first = forecast, past.first
        self._start_s = float(past.trace.jobs.submit_s[past.first])

    def admit(self, jobs: JobTable) -> None:
        """Does nothing: it has all jobs."""

    def length_s(self, job: int, now: float) -> float:
        """Returns the length of a job of the window."""
        return self._forecast.length_s(job + self._first, now + self._start_s)

    def distribution(self, job: int, now: float, done_s: DoneOf) -> LengthDistribution | None:
        """Returns the distribution of the length of a job of the window."""

        def of_rows(rows: Sequence[int]) -> list[float]:
            # Jobs before the window that had not ended are left out: how far they are is not known.
            first = self._first
            known = iter(done_s([row - first for row in rows if row >= first]))
            return [next(known) if row >= first else 0.0 for row in rows]

        row = job + self._first
        return self._forecast.distribution(row, now + self._start_s, of_rows)

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        """Learns from a job of the window."""
        self._forecast.ended(job + self._first, ran_s, how, now + self._start_s)


def mean_jct_s(policy: str, told: str, workload: WindowWorkload) -> float:
    """Returns the mean JCT of a policy on a window, told lengths by a forecast."""
    options = replace(BASE, seed=workload.seed)
    trace = adopted(workload.trace(), options.adopt, options.seed)
    scene = build_scene(trace, options)
    if told != KNOWN:
        forecast = deepcopy(_learned(workload, told))
        scene = replace(scene, forecast=Taught(forecast, Past.of(workload)))
    tally = play_scene(scene, parse_policy(policy))
    return float(np.mean(np.array(tally.finish_s) - trace.jobs.submit_s))


def has_limits(workload: WindowWorkload) -> bool:
    """Returns whether most jobs of a window have a time limit."""
    return float(np.isfinite(workload.trace().jobs.time_limit_s).mean()) > 0.5


def main() -> None:
    """Plays what is not stored and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="file with the runs played so far")
    parser.add_argument("--only", nargs="*", default=[f + x for f in SOURCES for x in FORMS])
    said = parser.parse_args()
    data = Path(os.environ.get("DOVETAIL_DATA", "../shared"))
    if not all((data / source.file).exists() for source in REAL):
        raise InputError(str(data), "the traces are not there", "set DOVETAIL_DATA")
    workloads = [
        WindowWorkload(s, str(data), window, WINDOWS, JOBS, HEAVY, SEED)
        for s in REAL
        for window in range(WINDOWS)
    ]
    stored = said.keep is not None and said.keep.exists()
    kept: dict[str, float] = json.loads(said.keep.read_text()) if stored else {}
    for workload in workloads:
        for told in (KNOWN, *said.only):
            if told.startswith("limit") and not has_limits(workload):
                continue
            for name, text in POLICIES.items():
                key = f"{workload.source.name} {workload.window} {told} {name}"
                if key not in kept:
                    kept[key] = mean_jct_s(text, told, workload)
            if said.keep is not None:
                said.keep.write_text(json.dumps(kept, indent=0))
    print(table(kept, workloads, said.only))


def table(kept: dict[str, float], workloads: Sequence[WindowWorkload], told: list[str]) -> str:
    """Returns the ratios as a table of Markdown: a row for each forecast."""
    lines = [f"| forecast | {' | '.join(POLICIES)} |", "|---" * (len(POLICIES) + 1) + "|"]
    units = [f"{w.source.name} {w.window}" for w in workloads]
    for forecast in told:
        cells = []
        for name in POLICIES:
            played = [u for u in units if f"{u} {forecast} {name}" in kept]
            if len(played) < 2:
                break
            ratio = np.array(
                [kept[f"{u} {forecast} {name}"] / kept[f"{u} {KNOWN} {name}"] for u in played]
            )
            found = geometric(ratio)
            cells.append(f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
        else:
            lines.append(f"| {forecast} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
