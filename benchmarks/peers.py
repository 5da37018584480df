"""Times a public simulator beside ours, on the same trace, for users who have it.

Run:  python -m benchmarks.peers [--muri PATH] [--trace trace3] [--policies srtf,srsf,tiresias]

PATH is a checkout of github.com/Rivendile/Muri; its simulator runs with its own
interpreter (`--python`, default this one). Without it only our side is timed. Ours is the whole
command with log and tables; the results are printed so that one sees they are the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import command, dovetail

PLACED = ("strict,first-fit,repack", "none,first-fit,repack")
OURS = {
    "srtf": ("srtf", PLACED[0], "shortest"),
    "srsf": ("srsf", PLACED[0], "shortest-gpu"),
    "tiresias": ("tiresias:thresholds=3250/7200,inside=list", PLACED[1], "dlas-gpu"),
}


def our_side(trace: Path, policy: str, placement: str) -> tuple[float, float, float]:
    """Returns the CPU seconds of the whole command, of the loop alone, and the mean JCT."""
    with tempfile.TemporaryDirectory() as name:
        cost = dovetail(
            *("simulate", str(trace), "--policy", policy, "--cluster", "8x8", "--json"),
            *("--placement", placement, "--switching", "none", "--physics", "linear"),
            *("--forecast", "known"),
            *("--no-report", "--no-bound", "-o", str(Path(name) / "run")),
        )
    said = json.loads(cost.output)
    return cost.cpu_s, loop_s(trace, policy, placement), float(said["avg_jct_s"])


def loop_s(trace: Path, policy: str, placement: str) -> float:
    """Returns the CPU seconds of the simulation alone, without start, reading and writing."""
    from dovetail.core.cluster import Cluster
    from dovetail.core.placing import Placing
    from dovetail.core.policy import parse_policy
    from dovetail.core.switching import Switching
    from dovetail.study.options import Options
    from dovetail.study.run import simulate
    from dovetail.traces.importing import import_trace

    jobs = import_trace([trace])
    options = Options(
        Cluster.parse("8x8"), Placing.parse(placement), Switching.parse("none"), physics="linear"
    )
    began = time.process_time()
    simulate(jobs, parse_policy(policy), options)
    return time.process_time() - began


def their_side(muri: Path, python: str, trace: str, schedule: str) -> float:
    """Returns the CPU seconds of the artifact, started as its own scripts start it."""
    with tempfile.TemporaryDirectory() as logs:
        cost = command(
            [
                *(python, "run_sim.py", "--cluster_spec=cluster_spec/n8g8.csv", "--print"),
                *("--scheme=yarn", f"--trace_file=trace-data/{trace}.csv"),
                *(f"--schedule={schedule}", f"--log_path={logs}", "--multi_resource", "4"),
            ],
            cwd=muri / "simulator",
        )
    return cost.cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--muri", type=Path, help="a checkout of the Muri artifact")
    parser.add_argument("--python", default=sys.executable, help="the artifact's interpreter")
    parser.add_argument("--trace", default="trace3")
    parser.add_argument("--policies", default="srtf,srsf,tiresias")
    given = parser.parse_args()
    data = Path(os.environ.get("DOVETAIL_DATA", "../shared"))
    ours_in = data / "data" / "muri" / "sim-traces" / f"{given.trace}.csv"
    if given.muri is not None:
        ours_in = given.muri / "simulator" / "trace-data" / f"{given.trace}.csv"
    if not ours_in.exists():
        raise SystemExit(f"{ours_in} is not there: set DOVETAIL_DATA or give --muri")
    for name in given.policies.split(","):
        policy, placement, schedule = OURS[name]
        whole_s, alone_s, mean_s = our_side(ours_in, policy, placement)
        line = f"{name} on {given.trace}: mean JCT {mean_s:.3f} s; command {whole_s:.2f} CPU s, "
        line += f"simulation alone {alone_s:.3f} CPU s"
        if given.muri is not None:
            theirs_s = their_side(given.muri, given.python, given.trace, schedule)
            line += f"; theirs {theirs_s:.2f} CPU s: {theirs_s / whole_s:.0f} and "
            line += f"{theirs_s / alone_s:.0f} times ours"
        print(line, flush=True)


if __name__ == "__main__":
    main()
