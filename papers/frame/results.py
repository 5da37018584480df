"""Many small runs on all cores: the same answers whatever the number of processes.

A run is a frozen, picklable value that knows how to play itself and returns plain numbers, so
that hundreds of runs cost no memory. The same run is played once for all figures that show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from typing import Protocol

import numpy as np

from dovetail.study.parallel import cores, set_up_worker, undisturbed, working_pool

Numbers = Mapping[str, float]
Progress = Callable[[float], None]


class PaperRun(Protocol):
    """One simulation, or whatever takes time; equal runs have equal outcomes."""

    def play(self) -> Numbers:
        """Returns what came of it."""
        ...

    def __hash__(self) -> int: ...


class Results:
    """What came of runs. It plays those it does not know, all at once, and remembers them.

    `progress` is told the share done of each batch; `known` runs are not played.
    """

    def __init__(
        self,
        processes: int = 0,
        progress: Progress | None = None,
        known: Mapping[PaperRun, Numbers] | None = None,
    ) -> None:
        self._processes = processes or cores()
        self._progress = progress or _quiet
        self._known = dict(known or {})

    def play(self, runs: Sequence[PaperRun]) -> list[Numbers]:
        """Returns the outcome of each run, in order. Raises what the first failing one does."""
        new = [run for run in dict.fromkeys(runs) if run not in self._known]
        if min(len(new), self._processes) <= 1:
            for done, run in enumerate(new, start=1):
                self._known[run] = run.play()
                self._progress(done / len(new))
        else:
            self._play_in_pool(new)
        return [self._known[run] for run in runs]

    def _play_in_pool(self, new: Sequence[PaperRun]) -> None:
        with working_pool(self._processes, set_up_worker) as pool:
            with undisturbed():
                waiting = {pool.submit(_play, run): run for run in new}
            for done, future in enumerate(as_completed(waiting), start=1):
                self._known[waiting[future]] = future.result()
                self._progress(done / len(new))

    def __getitem__(self, run: PaperRun) -> Numbers:
        return self.play([run])[0]

    def each(self, runs: Sequence[PaperRun], key: str) -> list[float]:
        """Returns one number of each run."""
        return [numbers[key] for numbers in self.play(runs)]

    def mean(self, runs: Sequence[PaperRun], key: str = "avg_jct_s") -> float:
        """Returns the mean of a number over runs."""
        return float(np.mean(self.each(runs, key)))

    def ratio(self, over: PaperRun, under: PaperRun, key: str = "avg_jct_s") -> float:
        """Returns a number of one run over that of another."""
        return self[over][key] / self[under][key]


def _play(run: PaperRun) -> Numbers:
    return run.play()


def _quiet(share: float) -> None:
    """Reports to nobody."""
