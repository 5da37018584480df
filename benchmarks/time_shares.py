"""How long Gavel's linear programme takes, by the number of jobs that are all different.

python -m benchmarks.time_shares
"""

from time import perf_counter

import numpy as np

from dovetail.algorithms.time_shares import Sharers, SharingGroup, time_shares

ROUND_S = 360.0
SIZES = (1, 2, 4, 8)


def crowd(jobs: int, seed: int) -> tuple[list[SharingGroup], list[Sharers]]:
    """Returns jobs of random size and length, and all pairs of equal size that gain."""
    draw = np.random.default_rng(seed)
    groups = [
        SharingGroup(1, int(draw.choice(SIZES)), float(draw.exponential())) for _ in range(jobs)
    ]
    asks = draw.uniform(0.1, 1.0, jobs)
    pairs = []
    for one in range(jobs):
        for other in range(one + 1, jobs):
            slowdown = max(1.0, float(asks[one] + asks[other]))
            if groups[one].gpus == groups[other].gpus and slowdown < 2:
                pairs.append(Sharers(one, other, 1, 1 / slowdown, 1 / slowdown))
    return groups, pairs


def main() -> None:
    """Prints the time to solve, and its part of a round."""
    time_shares(*crowd(4, 0), gpus=4)  # the first call imports the solver
    for jobs in (50, 100, 200, 300, 500):
        groups, pairs = crowd(jobs, jobs)
        began = perf_counter()
        time_shares(groups, pairs, gpus=64)
        took_s = perf_counter() - began
        print(f"{jobs} jobs, {len(pairs)} pairs: {took_s:.3f} s, {took_s / ROUND_S:.2%} of a round")


if __name__ == "__main__":
    main()
