"""What `dovetail` must reach on windows that nobody looked at before: goals and plays, on record.

This file is committed with the policy's parameters, before any of it is played; from then on
neither changes. `--set final` of `benchmarks.our_policy` names the 30 windows. One thing is varied
at a time around load 0.9, with one seed; loads, shares of owners and predicted lengths have three.
Rivals are the published policies that may do the same or less. CPU budget: three hours of one core;
what is not played by then, in this order, is reported as not played.
Run: python -m benchmarks.registered --out runs [--part 1/2] (plays; goes on where it was stopped)
then: python -m benchmarks.registered --out runs --report
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.our_policy import SETS, Cell, Comparison
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.files.whole_file import write_whole
from papers.frame.experiment import Results
from papers.frame.scope import find_data
from papers.systems.experiments import BASE, UNVARIED, Variant, owners, variants
from papers.systems.results import geometric

ELASTIC, ALL = "dovetail:share=false", "dovetail"
STOPPING = ("srtf", "srtf-e", "afs-l")
"""Published policies that may stop and resize jobs, and know lengths."""
SHARING = (*STOPPING, "sjf-bsbf")
"""Those, and what may share GPUs as well."""
OTHERS = ("muri-s:tick-s=0", "gimbal")
"""Played beside them: they may interleave, or limit, which `dovetail` does not."""
LOADS = (0.3, 0.6, 0.9, 1.2, 1.5)
HEAVY = 0.9
SHARES = (0.0, 0.2, 0.5, 1.0)
PREDICTED = "lengths predicted"
LARGE = "64x8"
LARGE_WINDOWS, LARGE_JOBS = 6, 640


@dataclass(frozen=True, slots=True)
class Play:
    """Policies on the windows of the final set, under one setting."""

    name: str
    setting: Variant
    load: float = HEAVY
    seeds: int = 1
    windows: int = 0
    jobs: int = 120


def plays() -> list[Play]:
    """Returns all plays, the most telling first."""
    by_load = [Play(f"load {load:g}", UNVARIED, load, 3) for load in sorted(LOADS, key=_from_heavy)]
    shares = [
        Play(f"{kind} {100 * share:g} %", Variant("", "", replace(BASE, adopt=adopt)), seeds=3)
        for share in SHARES[:-1]
        for kind, adopt in (
            ("elastic", owners(elastic=share)),
            ("shareable", owners(shareable=share)),
        )
    ]
    rigid = Variant("", "", replace(BASE, adopt=owners(0.0, 0.0)))
    shares.append(Play("rigid", rigid, seeds=3))
    mixed = ("half elastic", "none elastic", "half shareable", "none shareable")
    varied = [
        Play(v.words, v, seeds=3 if v.words == PREDICTED else 1)
        for v in variants(())
        if v.words not in mixed
    ]
    large = Variant("", "", replace(BASE, cluster=Cluster.parse(LARGE)))
    # Loads are those of 32 GPUs; these are 16 times as many.
    far = Play(LARGE, large, 16 * HEAVY, windows=LARGE_WINDOWS, jobs=LARGE_JOBS)
    first = (PREDICTED, "none may be stopped", "half may be stopped")
    varied.sort(key=lambda play: play.name not in first)
    return [*by_load, *shares, *varied[: len(first)], far, *varied[len(first) :]]


def _from_heavy(load: float) -> float:
    return abs(load - HEAVY)


# What is played.


def path_of(out: Path, play: Play) -> Path:
    """Returns the file of a play's outcome."""
    return out / f"{play.name.replace(' ', '_').replace('%', 'percent')}.json"


def play_all(out: Path, data: Path, part: tuple[int, int]) -> None:
    """Plays what is not on record in `out` yet; of `part` (k, n) every n-th play from the k-th."""
    number, parts = part
    # What a setting cannot touch is played once.
    results = Results(1)
    for play in plays()[number - 1 :: parts]:
        path = path_of(out, play)
        if path.exists():
            continue
        places = SETS["final"][:: len(SETS["final"]) // play.windows if play.windows else 1]
        comparison = Comparison(results, data, places, play.setting, jobs=play.jobs)
        names = (*SHARING, *OTHERS, ELASTIC, ALL)
        cells = {name: comparison.cells(name, play.load, play.seeds) for name in names}
        rows = {
            name: [[c.group, list(c.window), dict(c.numbers)] for c in each]
            for name, each in cells.items()
        }
        write_whole(path, json.dumps(rows))
        print(f"played {play.name}", flush=True)


def read(out: Path, play: Play) -> dict[str, list[Cell]]:
    """Returns the cells of a play by policy; empty if it was not played."""
    path = path_of(out, play)
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: [Cell(group, (window[0], window[1]), numbers) for group, window, numbers in each]
        for name, each in rows.items()
    }


# What is asked of it.


@dataclass(frozen=True, slots=True)
class Found:
    """A ratio (geometric over windows, with its 95 % interval), and whether it is as wished."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Goal:
    """A wish for the plays of some names."""

    words: str
    plays: Sequence[str]
    ask: Callable[[dict[str, list[Cell]]], Found]


def over(cells: dict[str, list[Cell]], mine: str, other: str, key: str = "jct_s") -> np.ndarray:
    """Returns the ratio of a number of two policies in each window."""
    pairs = zip(cells[mine], cells[other], strict=True)
    return np.array([a.numbers[key] / b.numbers[key] for a, b in pairs])


def mean(cells: dict[str, list[Cell]], policy: str, key: str) -> float:
    """Returns the mean of a number over windows."""
    return float(np.mean([cell.numbers[key] for cell in cells[policy]]))


def below(mine: str, other: str, most: float, high: float = np.inf, key: str = "jct_s") -> Goal:
    """Returns the goal that a policy is at most so much of another."""

    def ask(cells: dict[str, list[Cell]]) -> Found:
        ratio = geometric(over(cells, mine, other, key))
        text = f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        is_sure = high == np.inf or (ratio.high is not None and ratio.high <= high)
        return Found(text, ratio.value <= most and is_sure)

    limit = f", upper limit {high:g}" if high < np.inf else ""
    what = "" if key == "jct_s" else f"{key} of "
    return Goal(f"{what}`{mine}` at most {most:g} of `{other}`{limit}", (), ask)


def in_each_group(mine: str, others: Sequence[str], most: float) -> Goal:
    """Returns the goal that a policy is at most so much of the best of others in each log."""

    def ask(cells: dict[str, list[Cell]]) -> Found:
        groups = dict.fromkeys(cell.group for cell in cells[mine])
        rows: list[tuple[float, str, str]] = []
        for group in groups:
            at = [i for i, cell in enumerate(cells[mine]) if cell.group == group]
            each = {o: geometric(over(cells, mine, o)[at]).value for o in others}
            best = max((value, o) for o, value in each.items())
            rows.append((best[0], group, best[1]))
        worst = max(rows)
        return Found(f"{worst[0]:.3f} ({worst[1]}, of `{worst[2]}`)", worst[0] <= most)

    names = ", ".join(f"`{other}`" for other in others)
    return Goal(f"`{mine}` at most {most:g} of the best of {names}, in each log", (), ask)


def within(mine: str, other: str, part: float) -> Goal:
    """Returns the goal that two policies differ by at most a part, in the mean over windows."""

    def ask(cells: dict[str, list[Cell]]) -> Found:
        ratio = geometric(over(cells, mine, other)).value
        return Found(f"{ratio:.4f}", abs(ratio - 1) <= part)

    return Goal(f"`{mine}` within {100 * part:g} % of `{other}`", (), ask)


def more_deadlines(mine: str, other: str, points: float) -> Goal:
    """Returns the goal that a policy meets so many points more deadlines than another."""

    def ask(cells: dict[str, list[Cell]]) -> Found:
        more = 100 * (mean(cells, mine, "met") - mean(cells, other, "met"))
        return Found(f"{more:+.1f}", more >= points)

    return Goal(f"`{mine}` meets {points:g} points more deadlines than `{other}`", (), ask)


def no_more_stops(mine: str, other: str) -> Goal:
    """Returns the goal that a policy preempts no more often than another."""

    def ask(cells: dict[str, list[Cell]]) -> Found:
        here, there = (mean(cells, name, "preemptions") for name in (mine, other))
        return Found(f"{here:.2f} against {there:.2f} a job", here <= there)

    return Goal(f"`{mine}` preempts no more than `{other}`", (), ask)


def goals() -> Iterator[Goal]:
    """Yields all goals, each with the plays that it is asked of."""
    everywhere = [play.name for play in plays()]
    central = ["load 0.6", "load 0.9", "load 1.2"]
    others = [name for name in everywhere if name not in central]
    yield from _of(
        central,
        below(ELASTIC, "afs-l", 0.90, 0.93),
        below(ELASTIC, "afs-l", 1.0, key="p99_jct_s"),
        more_deadlines(ELASTIC, "afs-l", 4.0),
        no_more_stops(ELASTIC, "srtf"),
        below(ALL, ELASTIC, 0.92, 0.95),
    )
    yield from _of(others, in_each_group(ELASTIC, STOPPING, 1.02))
    yield from _of(everywhere, in_each_group(ALL, (ELASTIC,), 1.0))
    yield from _of(others, in_each_group(ALL, SHARING, 1.02))
    yield from _of(["rigid"], within(ELASTIC, "srtf", 0.01), within(ALL, "srtf", 0.01))
    yield from _of([PREDICTED], below(ELASTIC, "afs-l known", 1.0), below(ALL, "afs-l known", 1.0))


def _of(names: Sequence[str], *each: Goal) -> Iterator[Goal]:
    for goal in each:
        yield replace(goal, plays=names)


def report(out: Path) -> Iterator[str]:
    """Yields for each goal how many plays reach it and which do not, and then all ratios."""
    every = {play.name: read(out, play) for play in plays()}
    if every["load 0.9"] and every[PREDICTED]:
        every[PREDICTED]["afs-l known"] = every["load 0.9"]["afs-l"]
    missing = [name for name, cells in every.items() if not cells]
    yield f"not played: {', '.join(missing) or 'nothing'}"
    yield "| goal | holds | found |"
    yield "| --- | --- | --- |"
    for goal in goals():
        found = {name: goal.ask(every[name]) for name in goal.plays if every.get(name)}
        held = sum(one.holds for one in found.values())
        shown = found if len(found) <= 5 else {n: f for n, f in found.items() if not f.holds}
        texts = "; ".join(f"{name}: {one.text}" for name, one in shown.items())
        yield f"| {goal.words} | {held} of {len(found)} | {texts} |"
    names = (*SHARING[1:], *OTHERS, ELASTIC, ALL)
    yield "\nMean completion time over `srtf`:\n"
    yield "| play | " + " | ".join(f"`{name}`" for name in names) + " |"
    yield "| --- " * (len(names) + 1) + "|"
    for name, cells in every.items():
        if cells:
            ratios = (geometric(over(cells, policy, "srtf")).value for policy in names)
            yield f"| {name} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |"


def main() -> None:
    """Plays what is registered, or reports what was played."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registered")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    data = find_data(None)
    if data is None or not all((data / place[1].file).exists() for place in SETS["final"]):
        raise InputError(str(data), "the traces are not there", "set DOVETAIL_DATA")
    if asked.report:
        print("\n".join(report(asked.out)))
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    number, parts = (int(text) for text in asked.part.split("/"))
    play_all(asked.out, data, (number, parts))


if __name__ == "__main__":
    main()
