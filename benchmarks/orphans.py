"""How soon a cancelled job is over that left many orphans, processes it never waited for.

    python -m benchmarks.orphans [--orphans 2500] [--repetitions 5]

A cluster of real processes (`local:2`) runs a bash script that forks them. Measured is the time
from the call that cancels the job until it is CANCELLED, and its end is in the store.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.live_play import LiveCluster, live_cluster
from dovetail.wire.spec import JobSpec

KINDS = {
    "exited": "( : & )",
    "living, in its process group": "( sleep 1000 & )",
    "living, each in a session of its own": "( setsid sleep 1000 & )",
}
PATIENCE_S = 300.0


def cancelled_after_s(cluster: LiveCluster, fork: str, orphans: int) -> float:
    """Returns how long a job with so many orphans takes from the cancel to its end."""
    with tempfile.TemporaryDirectory(prefix="dvo-", dir="/tmp") as folder:
        there = Path(folder, "there")
        script = f"for ((i = 0; i < {orphans}; i++)); do {fork}; done; : > there; exec sleep 1000"
        spec = JobSpec("orphans", ("bash", "-c", script), folder, output=f"{folder}/out.log")
        (job,) = cluster.client.submit(spec)
        give_up_s = time.monotonic() + PATIENCE_S
        while not there.exists():
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"the job has not forked {orphans} processes")
            time.sleep(0.05)
        # Until all have begun what they are.
        time.sleep(1.0)
        began = time.perf_counter()
        cluster.client.cancel(job)
        (end,) = cluster.client.wait(job, timeout_s=PATIENCE_S)
        took_s = time.perf_counter() - began
        if end.state != "CANCELLED":
            raise RuntimeError(f"the job is {end.state}")
        return took_s


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orphans", type=int, default=2500)
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    print(f"{given.orphans:,} orphans, {given.repetitions} repetitions\n")
    print("| orphans | median | longest | load |\n| --- | --- | --- | --- |")
    with live_cluster("local:2", "fifo") as cluster:
        for kind, fork in KINDS.items():
            took_s = [
                cancelled_after_s(cluster, fork, given.orphans) for _ in range(given.repetitions)
            ]
            load = os.getloadavg()[0]
            middle = statistics.median(took_s)
            print(f"| {kind} | {middle:.2f} s | {max(took_s):.2f} s | {load:.1f} |", flush=True)


if __name__ == "__main__":
    main()
