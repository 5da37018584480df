"""The two sides of a replay over time: their jobs, and the GPUs that no job holds, by type.

A record names the type that a job asked for, not always the one it got: a job of several types, or
of none, counts only in the free GPUs of all types, so those of one type may be fewer than said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from dovetail.core.job import Floats, Ints

WANTED = "wanted_type"
"""The column of `Side.jobs` with the GPU type of a job: empty for any, `a|b` for one of several."""


@dataclass(frozen=True, slots=True)
class TypedCapacity:
    """The GPUs of each type that are present from each time on; the first holds before it too."""

    times: Floats
    gpus: Mapping[str, Floats]

    def at(self, gpu_type: str, at_s: Floats) -> Floats:
        """Returns the GPUs of a type that are present at some times."""
        place = np.maximum(np.searchsorted(self.times, at_s, side="right") - 1, 0)
        found = [g for name, g in self.gpus.items() if name.casefold() == gpu_type.casefold()]
        return np.asarray(sum((g[place] for g in found), np.zeros(len(at_s))))


@dataclass(frozen=True, slots=True)
class Side:
    """One side: its jobs, and the cluster over time."""

    jobs: pl.DataFrame
    series: pl.DataFrame

    def wanting(self, types: Mapping[str, str]) -> Side:
        """Returns the side with the GPU type that each job asked for, by its id."""
        wanted = [types.get(job, "") for job in self.jobs["job_id"]]
        return Side(self.jobs.with_columns(pl.Series(WANTED, wanted, pl.String)), self.series)

    def free_gpus(self, at_s: Floats) -> Ints | Floats:
        """Returns the GPUs that no job holds at some times."""
        t_s = self.series["t_s"].to_numpy()
        free = (self.series["capacity_gpus"] - self.series["held_gpus"]).to_numpy()
        found = np.searchsorted(t_s, at_s, side="right") - 1
        return np.asarray(np.where(found < 0, free.max(initial=0), free[np.maximum(found, 0)]))

    def free_for(
        self, at_s: Floats, types: Sequence[str], capacity: TypedCapacity
    ) -> Ints | Floats:
        """Returns the free GPUs of the types that each job asked for, at a time for each job."""
        free = self.free_gpus(at_s)
        wanted = np.asarray(types, dtype=np.str_)
        for text in np.unique(wanted).tolist() if capacity.gpus else ():
            if not text:
                continue
            rows, allowed = wanted == text, text.split("|")
            present = sum(capacity.at(name, at_s[rows]) for name in allowed)
            left = np.maximum(present - self._held(allowed, at_s[rows]), 0)
            free[rows] = np.minimum(free[rows], left.astype(free.dtype))
        return free

    def _held(self, allowed: Sequence[str], at_s: Floats) -> Floats:
        """Returns the GPUs held by the jobs that could only have got them from some types.

        A restarted job is counted as if all its wait came before its first run.
        """
        known = self.jobs.drop_nulls(["jct_s", "wait_s"])
        inside = known.filter(
            (pl.col(WANTED) != "")
            & pl.col(WANTED).str.split("|").list.eval(pl.element().is_in(list(allowed))).list.all()
        )
        submit_s, gpus = inside["submit_s"].to_numpy(), inside["gpus"].to_numpy()
        if "gpu_part" in inside.columns:
            gpus = gpus * inside["gpu_part"].to_numpy()
        run_s = submit_s + inside["wait_s"].to_numpy()
        end_s = submit_s + inside["jct_s"].to_numpy()
        return _sum_until(run_s, gpus, at_s) - _sum_until(end_s, gpus, at_s)


def _sum_until(times: Floats, weights: Ints, at_s: Floats) -> Floats:
    """Returns the weights of all events up to each of some times."""
    order = np.argsort(times, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    # A sum of rounded times may lie a moment after the instant that it means.
    found = np.searchsorted(times[order], at_s + ROUNDED_S, side="right")
    return np.asarray(total[found])


ROUNDED_S = 1e-3
