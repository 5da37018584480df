"""Finish-time fairness: the finish time of a job here over that on its own share.

`rho = T_shared / T_ideal` (Themis, NSDI 2020). T_shared is the time since submission plus the rest
of the job at the speed of some share; T_ideal the whole length at the speed of one N-th of the
cluster, where N is the number of jobs present, averaged over the job's life so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.view import View
from dovetail.mechanisms.elastic.marginal_shares import speeds
from dovetail.mechanisms.elastic.shares import widest


def _no_jobs() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """The jobs present, how many there were over time, and the ends of their leases.

    `crowd_job_s` is the integral of the number of jobs present over time; `joined_at` its value at
    each job's arrival. A job without a lease has -inf. Jobs ascend.
    """

    now_s: float = 0.0
    crowd_job_s: float = 0.0
    auctions: int = 0
    jobs: Ints = field(default_factory=_no_jobs)
    joined_at: Floats = field(default_factory=lambda: np.empty(0))
    lease_end_s: Floats = field(default_factory=lambda: np.empty(0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        columns = (self.jobs, self.joined_at, self.lease_end_s)
        return self.now_s, self.crowd_job_s, self.auctions, *(c.tobytes() for c in columns)

    def carried_to(self, now_s: float, present: Ints) -> Ledger:
        """Returns the ledger at a later time, from which on these jobs (ascending) are present."""
        crowd = self.crowd_job_s + len(self.jobs) * (now_s - self.now_s if len(self.jobs) else 0.0)
        stay = np.isin(self.jobs, present, assume_unique=True)
        known = np.isin(present, self.jobs, assume_unique=True)
        joined_at = np.full(len(present), crowd)
        lease_end_s = np.full(len(present), -np.inf)
        joined_at[known] = self.joined_at[stay]
        lease_end_s[known] = self.lease_end_s[stay]
        return Ledger(now_s, crowd, self.auctions, present, joined_at, lease_end_s)

    def held_until(self, held: Bools, until_s: float) -> Ledger:
        """Returns the ledger with a lease for jobs that run without one."""
        unleased = held & np.isneginf(self.lease_end_s)
        if not unleased.any():
            return self
        return replace(self, lease_end_s=np.where(unleased, until_s, self.lease_end_s))

    def leased(self, jobs: Ints, until_s: float) -> Ledger:
        """Returns the ledger after one more auction, with new leases for these jobs."""
        lease_end_s = self.lease_end_s.copy()
        lease_end_s[np.isin(self.jobs, jobs, assume_unique=True)] = until_s
        return replace(self, auctions=self.auctions + 1, lease_end_s=lease_end_s)

    def crowd(self, since_s: Floats) -> Floats:
        """Returns the mean number of jobs present over the life of each job."""
        here = float(len(self.jobs))
        life_s = self.now_s - since_s
        seen = (self.crowd_job_s - self.joined_at) / np.where(life_s > 0, life_s, 1.0)
        return np.maximum(1.0, np.where(life_s > 0, seen, here))


@dataclass(frozen=True, slots=True)
class Standing:
    """The inputs of finish-time fairness, one row per job; times in seconds."""

    jobs: Ints
    elapsed_s: Floats
    left_s: Floats
    ideal_s: Floats
    fair_speed: Floats

    def rho(self, speed: Floats) -> Floats:
        """Returns T_shared / T_ideal if each job ran at this speed from now on."""
        return np.asarray((self.elapsed_s + self.left_s / speed) / self.ideal_s)

    def of(self, jobs: Ints) -> Standing:
        """Returns the rows of some of the jobs."""
        row = np.searchsorted(self.jobs, jobs)
        return Standing(
            jobs, self.elapsed_s[row], self.left_s[row], self.ideal_s[row], self.fair_speed[row]
        )


def standing(view: View, ledger: Ledger) -> Standing:
    """Returns the standing of all jobs of a ledger."""
    jobs, table = ledger.jobs, view.jobs
    listed = jobs.tolist()
    cap = np.where(table.elastic, table.max_gpus, table.gpus)[jobs]
    fair = np.minimum(view.cluster.gpus / ledger.crowd(table.submit_s[jobs]), cap)
    fair = np.minimum(fair, widest(view))
    whole = np.floor(fair).astype(np.int64)
    ends = speeds(view, jobs, np.stack([whole, np.minimum(whole + 1, widest(view))], axis=1))
    # A share below one GPU is a part of one GPU's time.
    fair_speed = ends[:, 0] + (fair - whole) * (ends[:, 1] - ends[:, 0])
    length_s = np.array(view.progress.length_s(listed), dtype=np.float64)
    return Standing(
        jobs,
        view.now - table.submit_s[jobs],
        np.array(view.progress.left_s(listed), dtype=np.float64),
        np.maximum(length_s, 1e-9) / fair_speed,
        fair_speed,
    )
