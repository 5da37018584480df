"""A-SRPT on a hundred thousand recurrent jobs and 2,000 GPUs: whole commands, as a user types them.

Run:  python -m benchmarks.a_srpt [--jobs N] [--runs N]

Each trace is a seeded PAI-like month on 250 servers of eight GPUs. A row is one whole command,
`dovetail simulate TRACE --policy P -o DIR --no-report --no-bound`: start, reading, simulation,
summary, jobs.csv and event log; the median of its runs. fifo is there for its ratio: seconds differ
between machines. With models, jobs are pipelines of the paper's models.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import dovetail

CLUSTER, GPUS = "250x8", 2000


@dataclass(frozen=True, slots=True)
class Case:
    """One row: a policy on a trace of some offered load, its jobs with or without models."""

    policy: str
    models: str
    load: float


CASES = (
    Case("fifo", "", 0.9),
    Case("a-srpt", "", 0.9),
    Case("wcs-duration", "", 0.9),
    Case("a-srpt", "", 1.2),
    Case("fifo", "asrpt", 0.9),
    Case("a-srpt", "asrpt", 0.9),
    Case("wcs-duration", "asrpt", 0.9),
)


def trace_of(case: Case, jobs: int, folder: Path) -> Path:
    """Generates the trace of a case, once."""
    path = folder / f"{case.models or 'plain'}-{case.load}.csv"
    if not path.exists():
        dovetail(
            *("trace", "generate", "pai-like", "--jobs", str(jobs), "--days", "30"),
            *("--cluster", str(GPUS), "--load", str(case.load), "--seed", "1", "-o", str(path)),
            *(("--models", case.models) if case.models else ()),
        )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    print(
        "| policy | models | load | waiting at the peak | jobs/s, whole command | CPU s | "
        "decisions | decision p99 ms |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in CASES:
            trace = trace_of(case, given.jobs, folder)
            costs = []
            for run in range(given.runs):
                out = folder / f"{case.policy}-{trace.stem}-{run}"
                words = ("simulate", str(trace), "--policy", case.policy, "--cluster", CLUSTER)
                costs.append(
                    dovetail(*words, "--no-report", "--no-bound", "--json", "-o", str(out))
                )
            said = json.loads(costs[0].output)
            wall_s = statistics.median(cost.wall_s for cost in costs)
            cpu_s = statistics.median(cost.cpu_s for cost in costs)
            print(
                f"| {case.policy} | {case.models or '-'} | {case.load} | "
                f"{said['max_queue_length']:,} | {given.jobs / wall_s:,.0f} | {cpu_s:.1f} | "
                f"{said['decisions']:,} | {said['decision_p99_ms']:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
