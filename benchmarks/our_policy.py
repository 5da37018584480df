"""The policy `dovetail` beside the best published ones, on windows by what they were used for.

`tuning`: windows on which its parameters were chosen. `check`: windows of the same logs at other
places. `systems`: those of `python -m papers systems`. `final`: logs that nobody looked at before
the parameters were frozen, other virtual clusters of Philly, other clusters of ITP, and DIR-LAB's
Philly and Helios elsewhere; to be played once.

8 nodes of 4 GPUs, 120 jobs a window, as in `python -m papers systems`. Each ratio is geometric over
windows, with the 95 % interval of Student's t over them; the seeds of a window are averaged.
Run: python -m benchmarks.our_policy --set check [--loads 0.6,0.9,1.2] [--seeds 1]
[--setting "half elastic"] [--due 0.3] [--over afs-l] [--policies 'dovetail;afs-p']
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.core.errors import InputError, nearest
from papers.frame.experiment import Numbers, Results
from papers.frame.scope import find_data
from papers.systems.experiments import UNVARIED, SystemRun, Variant, system_run, variants
from papers.systems.results import geometric
from papers.systems.workloads import REAL, TraceSource, WindowWorkload

JOBS = 120
OURS = ("dovetail:share=false", "dovetail")
RIVALS = ("srtf", "srtf-e", "afs-l", "afs-p", "sjf-bsbf", "muri-s:tick-s=0")
HEADINGS = (
    "| p99 | slowdown | worst group | worst window | deadlines, points | stops a job |\n"
    + "| --- " * 9
    + "|"
)
Place = tuple[str, TraceSource, int, int]
"""A group of logs, a log, and the which of how many windows of it."""


def _vcs() -> list[Place]:
    names = ("0e4a51", "103959", "11cb48", "2869ce", "51b7ef", "6214e9", "6c71a0", "e13805")
    return [
        ("Philly VCs", TraceSource(f"VC {n}", f"traces/philly/afs_vcs/trace_{n}.csv.gz"), 0, 1)
        for n in (*names, "ed69ec")
    ]


def _itp() -> list[Place]:
    numbers = ("01", "02", "04", "05", "07", "08", "10")
    return [
        ("ITP", TraceSource(f"ITP {n}", f"traces/itp/raw/cluster{n}.csv.gz"), 0, 1) for n in numbers
    ]


def _dirlab(name: str, windows: Sequence[int]) -> list[Place]:
    file = f"traces/dirlab/{name.lower()}_data_training.first12000.csv.gz"
    return [(f"DIR-LAB {name}", TraceSource(f"DIR-LAB {name}", file), w, 17) for w in windows]


SETS: dict[str, list[Place]] = {
    "tuning": [(source.name, source, w, 3) for source in REAL for w in (1, 2)],
    "systems": [(source.name, source, w, 3) for source in REAL for w in (0, 1, 2)],
    "check": [(source.name, source, w, 11) for source in REAL for w in (0, 2, 4, 7, 9)],
    # 16 of 17 windows would touch those of the other sets: these 7 lie between them.
    "final": [
        *_vcs(),
        *_itp(),
        *_dirlab("Philly", (1, 3, 5, 7, 9, 11, 13)),
        *_dirlab("Helios", (1, 4, 6, 7, 10, 11, 15)),
    ],
}


@dataclass(frozen=True, slots=True)
class Cell:
    """The numbers of a policy on a window at a load, averaged over seeds."""

    group: str
    window: tuple[str, int]
    numbers: Numbers


class Comparison:
    """Runs of policies on a set of windows, under one setting."""

    def __init__(
        self,
        results: Results,
        data: Path,
        places: list[Place],
        setting: Variant,
        *,
        due: float = 1.0,
        jobs: int = JOBS,
    ) -> None:
        """Takes also the share of jobs with a deadline, and the jobs of each window."""
        self._results, self._data, self._places = results, data, places
        self._setting, self._due, self._jobs = setting, due, jobs

    def runs(self, policy: str, load: float, seeds: int) -> list[SystemRun]:
        """Returns the runs of a policy, the seeds of a window in a row."""
        varied = self._setting
        return [
            system_run(
                policy,
                WindowWorkload(
                    *(source, str(self._data), window, windows, self._jobs),
                    *(varied.load or load, seed),
                    family=varied.family or "all",
                    preemptible=varied.preemptible,
                    due=self._due,
                ),
                varied.options,
            )
            for _, source, window, windows in self._places
            for seed in range(seeds)
        ]

    def cells(self, policy: str, load: float, seeds: int) -> list[Cell]:
        """Returns the numbers of a policy by window."""
        played = self._results.play(self.runs(policy, load, seeds))
        cells = []
        for at, (group, source, window, _) in enumerate(self._places):
            each = played[at * seeds : (at + 1) * seeds]
            mean = {key: float(np.mean([n[key] for n in each])) for key in each[0]}
            cells.append(Cell(group, (source.name, window), mean))
        return cells


def row(name: str, load: float, mine: list[Cell], other: list[Cell]) -> str:
    """Returns a row of the table: a policy over another."""

    def over(key: str) -> np.ndarray:
        return np.array([a.numbers[key] / b.numbers[key] for a, b in zip(mine, other, strict=True)])

    jct = geometric(over("jct_s"))
    groups = dict.fromkeys(cell.group for cell in mine)
    by_group = [
        geometric(np.array([r for r, c in zip(over("jct_s"), mine, strict=True) if c.group == g]))
        for g in groups
    ]
    worst = max(one.value for one in by_group)
    tail, slowdown = geometric(over("p99_jct_s")).value, geometric(over("slowdown")).value
    more = np.mean([a.numbers["met"] - b.numbers["met"] for a, b in zip(mine, other, strict=True)])
    stops = np.mean([cell.numbers["preemptions"] for cell in mine])
    return (
        f"| {load:g} | {name} | {jct.value:.3f} ({jct.low:.3f} to {jct.high:.3f}) | {tail:.2f} "
        f"| {slowdown:.2f} | {worst:.3f} | {float(over('jct_s').max()):.2f} | {100 * more:+.1f} "
        f"| {stops:.2f} |"
    )


def main() -> None:
    """Plays a set of windows and prints a row for each load and policy."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.our_policy")
    parser.add_argument("--set", default="check", choices=sorted(SETS))
    parser.add_argument("--loads", default="0.6,0.9,1.2")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--over", default="afs-l")
    parser.add_argument("--policies", default=";".join((*RIVALS, *OURS)))
    parser.add_argument("--setting", default="")
    parser.add_argument("--due", type=float, default=1.0, help="share of jobs with a deadline")
    parser.add_argument("--processes", type=int, default=0)
    asked = parser.parse_args()
    data = find_data(None)
    places = SETS[asked.set]
    if data is None or not all((data / place[1].file).exists() for place in places):
        raise InputError(str(data), "the traces are not there", "set DOVETAIL_DATA")
    known = {"": UNVARIED, **{v.words: v for v in variants(())}}
    if asked.setting not in known:
        raise InputError(
            "--setting", f"unknown '{asked.setting}'", nearest(asked.setting, list(known))
        )
    setting = known[asked.setting]
    comparison = Comparison(Results(asked.processes), data, places, setting, due=asked.due)
    policies = asked.policies.split(";")
    print(f"set {asked.set}, {len(places)} windows, {asked.seeds} seeds, {asked.setting or 'base'}")
    print(f"| load | policy | mean JCT over {asked.over} {HEADINGS}")
    for load in [float(text) for text in asked.loads.split(",")]:
        for name in policies:
            base = comparison.cells(asked.over, load, asked.seeds)
            print(row(name, load, comparison.cells(name, load, asked.seeds), base))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
