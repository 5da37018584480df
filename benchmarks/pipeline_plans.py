"""How far iteration times under mixed parallelism are from measured ones, on rows not fitted to.

    python benchmarks/pipeline_plans.py --data ../shared

And the plans of A-SRPT's models with their shortest and longest iterations on its testbed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.algorithms.pipeline_time import packed_s, spread_s
from dovetail.physics.pipelines.pipelined import pipelined
from dovetail.physics.pipelines.planner import TESTBED, held_bytes, plan
from tools.zoo.plans import fit_plans
from tools.zoo.predicted_times import PredictedTimes


def errors(data: Path) -> None:
    """Prints the held-out errors, and what was fitted."""
    found = fit_plans(data)
    print(f"{'model':<10}{'rows':>6}{'mean':>9}{'p90':>9}{'worst':>9}   reached of the A800's peak")
    every_row = PredictedTimes.joined(found.held_out.values())
    for name, times in [*found.held_out.items(), ("all", every_row)]:
        error = times.error
        shares = "".join(f"{100 * x:>8.1f}%" for x in (error.mean, error.p90, error.worst))
        reached = f"{found.efficiency[name]:.2f}" if name in found.efficiency else ""
        print(f"{name:<10}{error.rows:>6}{shares}   {reached}")
    print(f"NIC of a server: {found.links.nic_bytes_per_s / 1e9:.1f} GB/s")


def plans() -> None:
    """Prints the plans."""
    print(f"\n{'model':<13}{'GPUs':>5}{'shortest':>12}{'longest':>12}{'GPU holds':>11}  replicas")
    for name, model in pipelined().items():
        for gpus in (1, 2, 4, 8, 16, 32):
            graph = plan(model, gpus)
            if graph:
                both_s = packed_s(graph, TESTBED), spread_s(graph, TESTBED)
                times = "".join(f"{1e3 * seconds:>9.1f} ms" for seconds in both_s)
                held = f"{held_bytes(model, gpus)[1] / 2**30:>7.1f} GiB"
                print(f"{name:<13}{gpus:>5}{times}{held}  {[s.replicas for s in graph]}")


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="holds data/ and traces/")
    errors(parser.parse_args().data)
    plans()


if __name__ == "__main__":
    main()
