"""Times `dovetail whatif` on a grid of 24 cells, beside as many runs of `dovetail simulate`.

Run:  python -m benchmarks.whatif [--jobs 8000] [--processes 2] [--forecast known]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.measure import dovetail
from dovetail.traces.canonical import write_trace
from dovetail.traces.generate import Recipe, generate

CLUSTER = "32x8"
GRID = (
    "--policies", "backfill,sjf,srtf", "--nodes", "+2,+4,-1", "--time-limit", "2d", "--cross",
)  # fmt: skip
"""3 policies x 4 numbers of nodes x 2 time limits."""


def main() -> None:
    """Measures both and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=8000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--forecast", default="known")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "month.csv"
        recipe = Recipe(
            "philly-like", given.jobs, 30.0, 1, load=0.9, cluster_gpus=256, time_limits=0.8
        )
        write_trace(generate(recipe), trace)
        common = (str(trace), "--cluster", CLUSTER, "--forecast", given.forecast)
        words = ("whatif", *common, *GRID, "--price", "2.10", "--json")
        whole = dovetail(*words, "--processes", str(given.processes))
        cells = len(json.loads(whole.output)["rows"])
        alone = [
            dovetail("simulate", *common, "-p", policy, "--no-bound", "--json")
            for policy in ("backfill", "sjf", "srtf")
        ]
    one_by_one_s = sum(cost.cpu_s for cost in alone) / len(alone) * cells
    print(
        json.dumps(
            {
                "cells": cells,
                "jobs": given.jobs,
                "forecast": given.forecast,
                "processes": given.processes,
                "wall_s": round(whole.wall_s, 1),
                "cpu_s": round(whole.cpu_s, 1),
                "peak_mib": round(whole.peak_mib),
                "one_by_one_cpu_s": round(one_by_one_s, 1),
                "cpu_ratio": round(one_by_one_s / whole.cpu_s, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
