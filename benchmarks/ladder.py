"""The tables of docs/claims/performance.md of whole commands, on traces with long queues.

Run:  python -m benchmarks.ladder [--quick] [--only BEGINNING]

Each trace is a seeded month: Philly-like with a daily cycle and bursts, or for A-SRPT PAI-like, of
recurrent jobs, some as pipelines of the paper's models. A row is one whole command,
`dovetail simulate TRACE --policy P --forecast known -o DIR --no-report --no-bound`: start, reading,
simulation, summary, jobs.csv and event log. Quote the median of several runs of one machine, and
ratios between rows rather than seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Cost, dovetail


@dataclass(frozen=True, slots=True)
class Month:
    """A kind of generated trace, and nodes of eight GPUs to play it on."""

    name: str
    nodes: int
    options: tuple[str, ...] = ()


PHILLY = Month("philly-like", 813, ("--bursts", "1.5"))
PAI = Month("pai-like", 250)
PIPELINES = Month("pai-like", 250, ("--models", "asrpt"))


@dataclass(frozen=True, slots=True)
class Rung:
    """One row: a policy on a month of some jobs and offered load."""

    name: str
    policy: str
    jobs: int
    load: float
    runs: int = 3
    month: Month = PHILLY


LADDER = (
    Rung("fifo", "fifo", 100_000, 0.95),
    Rung("sjf", "sjf", 100_000, 0.95),
    Rung("backfill", "backfill", 100_000, 0.95),
    Rung("fifo-1.2", "fifo", 100_000, 1.2),
    Rung("sjf-1.2", "sjf", 100_000, 1.2),
    Rung("backfill-1.2", "backfill", 100_000, 1.2),
    Rung("srtf", "srtf", 100_000, 0.95, 1),
    Rung("srsf", "srsf", 100_000, 0.95, 1),
    Rung("tiresias", "tiresias", 100_000, 0.95, 1),
    Rung("gittins", "gittins", 100_000, 0.95, 1),
    Rung("growth-10k", "fifo", 10_000, 0.9),
    Rung("growth-30k", "fifo", 30_000, 0.9),
    Rung("growth-100k", "fifo", 100_000, 0.9),
    Rung("growth-300k", "fifo", 300_000, 0.9, 1),
    Rung("growth-1m", "fifo", 1_000_000, 0.9, 1),
    Rung("recurrent-fifo", "fifo", 100_000, 0.9, 3, PAI),
    Rung("recurrent-a-srpt", "a-srpt", 100_000, 0.9, 3, PAI),
    Rung("recurrent-wcs", "wcs-duration", 100_000, 0.9, 3, PAI),
    Rung("recurrent-a-srpt-1.2", "a-srpt", 100_000, 1.2, 3, PAI),
    Rung("recurrent-models-fifo", "fifo", 100_000, 0.9, 3, PIPELINES),
    Rung("recurrent-models-a-srpt", "a-srpt", 100_000, 0.9, 3, PIPELINES),
    Rung("recurrent-models-wcs", "wcs-duration", 100_000, 0.9, 3, PIPELINES),
)


def trace_of(rung: Rung, folder: Path) -> Path:
    """Generates the trace of a rung, once."""
    month = rung.month
    path = folder / f"{month.name}-{'-'.join(month.options)}-{rung.jobs}-{rung.load}.csv"
    if not path.exists():
        dovetail(
            *("trace", "generate", month.name, *month.options, "--jobs", str(rung.jobs)),
            *("--days", "30", "--load", str(rung.load), "--cluster", str(8 * month.nodes)),
            *("--seed", "1", "-o", str(path)),
        )
    return path


def climb(rung: Rung, folder: Path, number: int) -> tuple[Cost, dict[str, float]]:
    """Runs one rung and returns its cost and summary."""
    out = folder / f"{rung.name}-{number}"
    cost = dovetail(
        *("simulate", str(trace_of(rung, folder)), "--policy", rung.policy, "--forecast", "known"),
        *(
            "--cluster",
            f"{rung.month.nodes}x8",
            "--no-report",
            "--no-bound",
            "--json",
            "-o",
            str(out),
        ),
    )
    return cost, json.loads(cost.output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only up to 100,000 jobs, one run")
    parser.add_argument("--only", default="", help="only the rungs whose names begin so")
    given = parser.parse_args()
    print(
        "| rung | policy | jobs | load | waiting at the peak | jobs/s, whole command | CPU s | "
        "peak MiB | decision p99 ms |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rung in LADDER:
            if not rung.name.startswith(given.only) or (given.quick and rung.jobs > 100_000):
                continue
            runs = 1 if given.quick else rung.runs
            results = [climb(rung, folder, i) for i in range(runs)]
            wall_s = statistics.median(cost.wall_s for cost, _ in results)
            cpu_s = statistics.median(cost.cpu_s for cost, _ in results)
            cost, summary = results[0]
            print(
                f"| {rung.name} | {rung.policy} | {rung.jobs:,} | {rung.load} | "
                f"{summary['max_queue_length']:,} | {rung.jobs / wall_s:,.0f} | {cpu_s:.1f} | "
                f"{cost.peak_mib:.0f} | {summary['decision_p99_ms']:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
