"""Times AFS shares against their plain definition, their regulation, and the packing of both.

Run: `python -m benchmarks.afs_kernel [COMPARISONS]`; pools with at most so many comparisons
(GPUs x jobs) are timed with the plain definition too, at about 2 us each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from dovetail.algorithms import afs, regulation
from dovetail.algorithms.machine_packing import Held, Placement, pack
from papers.afs import plain_shares

SIZES = ((64, 40), (1_868, 100), (1_868, 600), (1_868, 1_800), (10_000, 100), (10_000, 2_000))
"""GPUs and jobs; 1,868 GPUs are the largest virtual cluster of the Philly trace."""
CAP_GPUS = 64


def kept(placements: Sequence[Placement], held: Sequence[Held]) -> tuple[int, int]:
    """Returns the number of jobs that keep a GPU they hold, and of all GPUs kept."""
    gpus = [
        sum(min(here, holding.get(machine, 0)) for machine, here in place)
        for place, holding in zip(placements, held, strict=True)
    ]
    return sum(g > 0 for g in gpus), sum(gpus)


def crowd(jobs: int, family: str, seed: int) -> dict[str, np.ndarray]:
    """Returns claims: a few models that many share, or a table of its own for every job."""
    rng = np.random.default_rng(seed)
    kinds = 9 if family == "models" else jobs
    counts = np.arange(CAP_GPUS + 1)
    overhead = rng.uniform(0.001, 0.2, size=(kinds, 1))
    rates = counts / (1 + overhead * np.maximum(counts - 1, 0))
    if family == "jagged":
        steps = np.maximum(rng.normal(0.5, 0.5, size=(kinds, CAP_GPUS)), 0.0)
        steps[:, 0] = 1.0
        rates = np.concatenate((np.zeros((kinds, 1)), np.cumsum(steps, axis=1)), axis=1)
    return {
        "left_s": rng.lognormal(8, 2, jobs),
        "rates": rates,
        "kind": rng.integers(0, kinds, jobs) if family == "models" else np.arange(jobs),
        "cap": rng.integers(1, CAP_GPUS + 1, jobs),
    }


def milliseconds(
    shares: Callable[..., np.ndarray], asked: dict[str, object], times: int
) -> np.ndarray:
    """Returns what each call took."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        shares(**asked)
        took.append((time.perf_counter() - began) * 1e3)
    return np.array(took)


def row(gpus: int, jobs: int, family: str, rule: str, comparisons_max: int) -> str:
    """Returns one line: the compiled shares over 5 crowds, 10 times each, and the plain ones."""
    name = "shares_by_length" if rule == "AFS-L" else "shares_without_length"
    plain, fast = getattr(plain_shares, name), getattr(afs, name)
    took, ratio = np.array([]), ""
    for seed in range(5):
        asked: dict[str, object] = {"gpus": gpus, **crowd(jobs, family, seed)}
        if rule == "AFS-P":
            asked.pop("left_s")
        took = np.append(took, milliseconds(fast, asked, 10))
        if seed == 0 and gpus * jobs <= comparisons_max:
            ratio = f"{milliseconds(plain, asked, 1)[0] / np.median(took):,.0f}"
    line = f"{gpus:>6} {jobs:>5} {family:>8} {rule:>6}"
    return f"{line} {np.median(took):>10.3f} {took.max():>9.3f} {ratio:>15}"


def regulation_row(gpus: int, jobs: int, gpus_per_machine: int) -> str:
    """Returns one line: time and sum of differences of the search and of the growth moves."""
    rng = np.random.default_rng(jobs)
    shares = rng.multinomial(gpus - jobs, rng.dirichlet(np.full(jobs, 2.0))) + 1
    caps = shares + rng.integers(0, CAP_GPUS, jobs)
    took, cost = [], []
    limit = regulation.EXACT_STATES_MAX
    for states in (10**9, 0):
        regulation.EXACT_STATES_MAX = states
        asked = {"machines": gpus // gpus_per_machine, "gpus_per_machine": gpus_per_machine}
        asked |= {"shares": shares, "caps": caps}
        took.append(float(np.median(milliseconds(regulation.regulate, asked, 10))))
        cost.append(int(np.abs(regulation.regulate(**asked) - shares).sum()))
    regulation.EXACT_STATES_MAX = limit
    times = f"{took[0]:>10.3f} {took[1]:>9.3f}"
    return f"{gpus:>6} {jobs:>5} {gpus_per_machine:>11} {times} {cost[0]:>11} {cost[1]:>10}"


def churn_row(gpus: int, jobs: int, gpus_per_machine: int) -> str:
    """Returns one line: shares, regulation and packing over 50 events, each one job for another."""
    rng, asked = np.random.default_rng(0), crowd(jobs, "models", 1)
    held: list[dict[int, int]] = [{} for _ in range(jobs)]
    took, stayed = [], []
    for _ in range(51):
        new = int(rng.integers(jobs))
        asked["left_s"] = asked["left_s"] * rng.uniform(0.98, 1, jobs)
        asked["left_s"][new], held[new] = rng.lognormal(8, 2), {}
        machines = gpus // gpus_per_machine
        instants = [time.perf_counter()]
        shares = afs.shares_by_length(**asked, gpus=gpus)
        instants.append(time.perf_counter())
        regulated = regulation.regulate(shares, asked["cap"], gpus_per_machine, machines).tolist()
        instants.append(time.perf_counter())
        placed = pack(regulated, held, gpus_per_machine, range(machines))
        instants.append(time.perf_counter())
        took.append(np.diff(instants) * 1e3)
        running = sum(bool(had) and share > 0 for had, share in zip(held, regulated, strict=True))
        stayed.append(kept(placed, held)[0] / max(1, running))
        held = [dict(place) for place in placed]
    each = np.median(took[1:], axis=0)
    total = np.sum(took[1:], axis=1)
    times = f"{each[0]:>9.2f} {each[1]:>11.2f} {each[2]:>8.2f}"
    ends = f"{np.median(total):>8.2f} {total.max():>9.2f} {np.mean(stayed[1:]):>10.2%}"
    return f"{gpus:>6} {jobs:>5} {gpus_per_machine:>11} {times} {ends}"


def main(comparisons_max: int) -> None:
    afs.shares_by_length([1.0, 2.0], [[0.0, 1.0, 1.5]], [0, 0], [2, 2], 3)
    print("  GPUs  jobs   tables   rule  median ms  worst ms  plain/compiled")
    for gpus, jobs in SIZES:
        for family in ("models", "smooth", "jagged"):
            for rule in ("AFS-L", "AFS-P"):
                print(row(gpus, jobs, family, rule, comparisons_max))
    print("\n  GPUs  jobs per machine  search ms  moves ms search cost moves cost")
    for gpus, jobs in ((64, 40), (1_864, 100), (1_864, 600), (1_864, 1_800), (10_000, 2_000)):
        for gpus_per_machine in (4, 8):
            print(regulation_row(gpus, jobs, gpus_per_machine))
    print("\n  GPUs  jobs per machine shares ms regulate ms  pack ms   all ms  worst ms  keep GPUs")
    for gpus, jobs in ((64, 40), (1_864, 100), (1_864, 600), (1_864, 1_800), (10_000, 2_000)):
        print(churn_row(gpus, jobs, 8))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
