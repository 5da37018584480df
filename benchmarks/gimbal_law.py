"""What GIMBAL would gain if limits were worth more: the law between limits, bent.

    python -m benchmarks.gimbal_law --workloads 4

Nobody published how the loss of two jobs on a GPU falls between free competition and limits that
do not meet; the simulator takes a straight line in what is contested. Here it also falls with a
power of it, on the workloads of `python -m papers gimbal` (Philly's, DOVETAIL_DATA).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from dovetail.physics.sharing import worker_slowdowns
from papers.frame.scope import Scope, find_data
from papers.gimbal.experiments import (
    MORE_IS_BETTER,
    STEPS,
    SWEPT,
    UpperScheduler,
    gain_of,
    gimbal_run,
)
from papers.gimbal.pairs import bent_slowdown
from papers.gimbal.workloads import GimbalWorkload, data_of


@contextmanager
def bent(power: float) -> Iterator[None]:
    """Lets the loss go with a power of what is contested; 1 is the law as it is."""

    def slowdown(u: float, limit: float, other: float, other_limit: float, ratio: float) -> float:
        return bent_slowdown(u, limit, other, other_limit, ratio, power)

    with mock.patch.object(worker_slowdowns, "shared_slowdown", slowdown):
        yield


def gains(
    upper: UpperScheduler, workloads: list[GimbalWorkload], power: float
) -> tuple[list[float], list[float]]:
    """Returns by bed what GIMBAL gains, and what limits and samples add to packing alone."""
    whole, added = [], []
    for workload in workloads:
        with bent(power):
            alone, packed, under = (
                gimbal_run(workload, policy).play()[upper.measure]
                for policy in (upper.alone, upper.under(STEPS[0]), upper.under())
            )
        better = upper.measure in MORE_IS_BETTER
        whole.append(under / alone if better else alone / under)
        added.append(under / packed if better else packed / under)
    return whole, added


def main() -> None:
    """Prints gains, geometric means with intervals, by scheduler and power."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=4)
    parser.add_argument("--powers", type=float, nargs="+", default=[1.0, 2.0])
    given = parser.parse_args()
    data = data_of(Scope(find_data(None)))
    print(f"{given.workloads} workloads, traces {'of ' + data if data else 'generated'}")
    workloads = [GimbalWorkload("philly", seed, data) for seed in range(given.workloads)]
    for upper in SWEPT:
        for power in given.powers:
            whole, added = (gain_of(ratios) for ratios in gains(upper, workloads, power))
            said = f"{upper.name}, power {power:g}"
            print(f"{said}: gain {whole.mean:.3f} ({whole.words})", end="")
            print(f", of it limits and samples {added.mean:.3f} ({added.words})", flush=True)


if __name__ == "__main__":
    main()
