"""Many small runs on all cores: the same answers whatever the number of processes.

A trial is a frozen, picklable value that knows how to play itself and returns plain numbers, so
that hundreds of runs cost no memory. The same trial is played once for all figures that show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from typing import Protocol

from dovetail.study.parallel import cores, set_up_worker, undisturbed, working_pool

Numbers = Mapping[str, float]
Progress = Callable[[float], None]


class Trial(Protocol):
    """One run, or whatever takes time; equal trials have equal outcomes."""

    def play(self) -> Numbers:
        """Returns what came of it."""
        ...

    def __hash__(self) -> int: ...


class Trials:
    """Plays trials and remembers them. `progress` is told the share done of each batch."""

    def __init__(self, processes: int = 0, progress: Progress | None = None) -> None:
        self._processes = processes or cores()
        self._progress = progress or _quiet
        self._played: dict[Trial, Numbers] = {}

    def play(self, trials: Sequence[Trial]) -> list[Numbers]:
        """Returns the outcome of each trial, in order. Raises what the first failing one does."""
        new = [t for t in dict.fromkeys(trials) if t not in self._played]
        if min(len(new), self._processes) <= 1:
            for done, trial in enumerate(new, start=1):
                self._played[trial] = trial.play()
                self._progress(done / len(new))
        else:
            self._play_in_pool(new)
        return [self._played[t] for t in trials]

    def _play_in_pool(self, new: Sequence[Trial]) -> None:
        with working_pool(self._processes, set_up_worker) as pool:
            with undisturbed():
                waiting = {pool.submit(_play, trial): trial for trial in new}
            for done, future in enumerate(as_completed(waiting), start=1):
                self._played[waiting[future]] = future.result()
                self._progress(done / len(new))


def _play(trial: Trial) -> Numbers:
    return trial.play()


def _quiet(share: float) -> None:
    """Tells nobody."""
