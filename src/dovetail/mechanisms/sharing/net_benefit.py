"""Hosts for a waiting job that all together lose less than it gains.

SJF-BSBF asks of each host whether the pair gains over waiting for this host to end. Two things are
different here. A job need not wait for a host: it is compared with starting when enough GPUs get
free, if that is sooner. And a gang beside several hosts gains once, but slows each of them: it
joins if it gains more than they lose in sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.units import NEVER_S, RELATIVE_TOLERANCE
from dovetail.mechanisms.sharing.pair_tables import Ends, ends
from dovetail.mechanisms.sharing.shared_gpus import Seat, SharedGpus


@dataclass(slots=True)
class NetBenefit:
    """Joins the hosts with the smallest sum of both ends, if it gains more than they lose.

    For one decision: when GPUs get free is looked up once, in the plan as it runs.
    """

    weighs: ClassVar[bool] = True
    _frees_s: Floats | None = field(init=False, default=None)

    def offered(self, gpus: SharedGpus, guests: Ints, shortest_s: Floats) -> Ints:
        """Returns the GPUs of the hosts beside which a job of each class fits."""
        return np.asarray((gpus.rules.pairs.fewest[guests[:, None], gpus.hosts] > 0) @ gpus.alone)

    def seat(self, gpus: SharedGpus, guest: int, length_s: float, need: int) -> Seat | None:
        """Returns GPUs of hosts until the gang is complete, part of the last one's."""
        both, alone_s = self._beside(gpus, guest, length_s, need)
        joined = _until(gpus, _by_sum(gpus, both, alone_s), int(gpus.rules.guest_gpus[guest]))
        rows = [row for row, _ in joined]
        if sum(count for _, count in joined) < need or not _pays(gpus, both, alone_s, rows):
            return None
        return Seat(tuple(joined), int(both.steps[rows].max()))

    def single_hosts(self, gpus: SharedGpus, guest: int, length_s: float) -> list[Seat]:
        """Returns places for the whole gang beside one host each, the best first."""
        wanted = int(gpus.rules.guest_gpus[guest])
        both, alone_s = self._beside(gpus, guest, length_s, wanted)
        return [
            Seat(((row, wanted),), int(both.steps[row]))
            for row in _by_sum(gpus, both, alone_s)
            if gpus.alone[row] >= wanted and _pays(gpus, both, alone_s, [row])
        ]

    def _beside(
        self, gpus: SharedGpus, guest: int, length_s: float, need: int
    ) -> tuple[Ends, Floats]:
        """Returns the ends beside each host, and those of the job if it waits instead of joining.

        It waits until the host ends or `need` GPUs get free, whichever is sooner.
        """
        row, left_s = gpus.rules.pairs.row(guest), gpus.left_s
        if self._frees_s is None:
            self._frees_s = _frees_s(gpus)
        frees_s = self._frees_s[need - 1] if need <= len(self._frees_s) else NEVER_S
        alone_s = np.minimum(left_s, frees_s) + length_s * row.uncut[gpus.hosts]
        return ends(row, gpus.hosts, left_s, length_s), alone_s


def _by_sum(gpus: SharedGpus, both: Ends, alone_s: Floats) -> list[int]:
    """Returns the rows of the hosts beside which a job ends sooner, the best first."""
    rows = np.flatnonzero((gpus.alone > 0) & (both.guest_s < alone_s))
    best = np.lexsort((gpus.jobs[rows], (both.host_s + both.guest_s)[rows]))
    return [int(row) for row in rows[best]]


def _until(gpus: SharedGpus, rows: list[int], wanted: int) -> list[tuple[int, int]]:
    """Returns the first hosts, with the GPUs of each, until there are as many as wanted."""
    joined: list[tuple[int, int]] = []
    for row in rows:
        if not wanted:
            break
        count = min(int(gpus.alone[row]), wanted)
        joined.append((row, count))
        wanted -= count
    return joined


def _pays(gpus: SharedGpus, both: Ends, alone_s: Floats, rows: list[int]) -> bool:
    """Returns whether a job beside all of these hosts gains more than they lose."""
    if not rows:
        return False
    waits_s, ends_s = float(alone_s[rows].min()), float(both.guest_s[rows].max())
    lost_s = float((both.host_s - gpus.left_s)[rows].sum())
    return ends_s + lost_s < waits_s * (1.0 - RELATIVE_TOLERANCE)


def _frees_s(gpus: SharedGpus) -> Floats:
    """Returns when each GPU in use gets free, in order, if every job ran on as if alone."""
    running, rules = gpus.view.progress.running(), gpus.rules
    left_s = running.left_s / rules.speed_of[running.jobs]
    left_of = dict(zip(running.jobs.tolist(), left_s.tolist(), strict=True))
    # What the draft has changed so far is not in the list: jobs that it starts end late.
    pairs = ([j for j in jobs if j in left_of] for jobs in gpus.draft.occupancy.named.values())
    shared = [jobs for jobs in pairs if len(jobs) > 1]
    crowd = np.array([job for jobs in shared for job in jobs], np.int64)
    lost = np.bincount(crowd, minlength=len(gpus.view.jobs))[running.jobs]
    alone = np.maximum(running.gpus.astype(np.int64) - lost, 0)
    last_s = [max(left_of[job] for job in jobs) for jobs in shared]
    return np.sort(np.concatenate([np.repeat(left_s, alone), np.array(last_s)]))
