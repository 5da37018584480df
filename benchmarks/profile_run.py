"""Shows where the time of a run goes: the functions that take most, under the profiler.

Run:  python -m benchmarks.profile_run TRACE POLICY [CLUSTER]
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import tempfile
from pathlib import Path

from dovetail.core.cluster import Cluster
from dovetail.core.policy import parse_policy
from dovetail.study.options import Options
from dovetail.study.run import simulate
from dovetail.traces.importing import open_trace

ROWS = 25


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    trace = open_trace(Path(sys.argv[1]))
    options = Options(Cluster.parse(sys.argv[3] if len(sys.argv) > 3 else "813x8"))
    with tempfile.TemporaryDirectory() as folder:
        profiler = cProfile.Profile()
        profiler.enable()
        simulate(trace, parse_policy(sys.argv[2]), options, log_to=Path(folder) / "events.jsonl")
        profiler.disable()
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(ROWS)


if __name__ == "__main__":
    main()
