"""How long interleave sets take: both rules against what Muri's authors measured, and each other.

    python -m benchmarks.interleaving

Table 2 of the Muri paper gives each member's share of its speed alone in one set of four, two
machines of eight V100; the authors' program has factors of measured over reckoned cycles. The
rest compares rules over all sets of models of the zoo.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np

from dovetail.algorithms.stage_cycle import BARRIER, CYCLES, OVERLAPPED
from dovetail.physics.sharing.service_demand import well_placed_demand
from dovetail.physics.sharing.turns import MEASURED_FACTORS, InterleaveRule, interleaving_of
from dovetail.physics.zoo.models import FAMILIES, zoo
from papers.muri.best_cycles import best_cycles

TABLE_2 = {"shufflenet_v2_x1_0": 0.86, "a2c": 0.48, "gpt2": 0.41, "vgg16": 0.25}
MACHINES_GPUS = 16
COUNTS = (1, 8)


def main() -> None:
    """Prints all comparisons."""
    table_2()
    all_sets()


def table_2() -> None:
    """Prints the speeds of the four jobs of Table 2, and the factor that would make them so."""
    demands = [well_placed_demand(zoo()[f"muri/{name}"], MACHINES_GPUS) for name in TABLE_2]
    known = interleaving_of(demands, InterleaveRule())
    everybody = np.arange(len(demands))[None]
    alone = known.iteration_s
    print(f"Table 2: speed over speed alone in a set of four, {MACHINES_GPUS} GPUs")
    print(f"{'rule':<26}" + "".join(f"{name[:10]:>12}" for name in TABLE_2) + f"{'sum':>8}")
    published = list(TABLE_2.values())
    line("published (measured)", published)
    for rule in CYCLES:
        cycle_s = float(best_cycles(known.stage_s, everybody, rule)[0])
        for factor in (1.0, MEASURED_FACTORS[3]):
            floored = max(cycle_s * factor, float(alone.max()))
            line(f"{rule}, x {factor:g}", (alone / floored).tolist())
        measured_s = float(alone.sum()) / sum(published)
        print(f"  {rule}: {measured_s / cycle_s:.2f} x the reckoned cycle gives the measured sum")
    implied_s = alone / np.array(published)
    print("  cycle in which each made an iteration, s: " + ", ".join(f"{s:.2f}" for s in implied_s))


def line(words: str, speeds: list[float]) -> None:
    """Prints one row of speeds and their sum."""
    print(f"{words:<26}" + "".join(f"{s:>12.2f}" for s in speeds) + f"{sum(speeds):>8.2f}")


def all_sets() -> None:
    """Prints what the rules say of all sets of models of each family."""
    print("\nall sets of a family on as many GPUs; ratio without contention; gain as by default")
    print(
        f"{'family':<13}{'GPUs':>5}{'members':>9}{'sets':>7}  barrier/overlapped      gain    below"
    )
    for family in FAMILIES:
        members = [p for p in zoo().values() if p.family == family and p.stages is not None]
        for gpus in COUNTS:
            known = interleaving_of(
                [well_placed_demand(p, gpus) for p in members], InterleaveRule()
            )
            for size in (2, 3, 4):
                compared(family, gpus, known.stage_s, known.iteration_s, size)


def compared(family: str, gpus: int, stage_s: np.ndarray, alone_s: np.ndarray, size: int) -> None:
    """Prints the ratio of both cycles, the sum of speeds, and how many sets the floor holds."""
    sets = np.array(list(combinations_with_replacement(range(len(stage_s)), size)))
    barrier, overlapped = (best_cycles(stage_s, sets, rule) for rule in (BARRIER, OVERLAPPED))
    ratio = barrier / overlapped
    longest = alone_s[sets].max(axis=1)
    gain = alone_s[sets].sum(axis=1) / np.maximum(barrier * MEASURED_FACTORS[size - 1], longest)
    below = float((barrier < longest).mean())
    print(
        f"{family:<13}{gpus:>5}{size:>9}{len(sets):>7}  {np.median(ratio):>6.2f} "
        f"({ratio.min():.2f} to {ratio.max():.2f}){np.median(gain):>6.2f}{below:>8.0%}"
    )


if __name__ == "__main__":
    main()
