"""What Slurm's scheduler keeps over a restart: usage of associations, and when requeued jobs begin.

slurmctld saves both in its StateSaveLocation (`assoc_usage`, `job_state`). Times are those of the
controller's clock, jobs go by lasting names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import numpy as np

from dovetail.core.policy import UNTIL_S, Kept
from dovetail.mechanisms.slurm.fair_share import FairShares
from dovetail.mechanisms.slurm.fair_tree import Association, FairTree
from dovetail.mechanisms.slurm.parameters import SlurmParameters
from dovetail.mechanisms.slurm.site import Site
from dovetail.mechanisms.slurm.usage import RunningShare, decayed

SLURM = "slurm"
"""The name under which the usage is kept for the next controller."""


@dataclass(frozen=True, slots=True)
class KeptUsage:
    """Usage up to `calculated_s`, and the jobs `running` since then; as `FairShares` by name.

    A run is row, start, association and what a second costs; row -1 is a job that is gone.

    `until_s` is when another policy took over, which counts nothing.
    """

    calculated_s: float
    usage: tuple[tuple[Association, float], ...]
    running: tuple[tuple[int, float, Association, float], ...]
    until_s: float | None = None

    @staticmethod
    def of(shares: FairShares) -> KeptUsage:
        """Returns the usage of all associations."""
        names = {leaf: pair for pair, leaf in shares.tree.leaf_of.items()}
        return KeptUsage(
            shares.calculated_s,
            tuple((names[leaf], used) for leaf, used in enumerate(shares.usage.tolist()) if used),
            tuple(
                (job, each.start_s, names[each.leaf], each.billed_per_s)
                for job, each in shares.running.items()
            ),
        )

    def kept(self, name_of: Callable[[int], str]) -> Kept:
        """Returns the usage as values for JSON, nothing if there is none."""
        if not self.usage and not self.running:
            return {}
        return {
            "calculated_s": self.calculated_s,
            "usage": [[*pair, used] for pair, used in self.usage],
            "running": {
                name_of(job): [t, *pair, cost] for job, t, pair, cost in self.running if job >= 0
            },
        }

    @staticmethod
    def recalled(kept: Kept, row_of: Mapping[str, int], until_s: float | None) -> KeptUsage:
        """Returns the usage of such values. Raises TypeError, ValueError or LookupError."""
        usage = cast("Sequence[tuple[str, str, float]]", kept.get("usage", ()))
        running = cast("Mapping[str, tuple[float, str, str, float]]", kept.get("running", {}))
        return KeptUsage(
            float(cast(float, kept.get("calculated_s", 0.0))),
            tuple(((str(account), str(user)), float(used)) for account, user, used in usage),
            tuple(
                (row_of.get(job, -1), float(t), (str(account), str(user)), float(cost))
                for job, (t, account, user, cost) in running.items()
            ),
            until_s,
        )

    def shares(self, p: SlurmParameters, site: Site) -> FairShares:
        """Returns the shares of the associations of a site."""
        seen = [pair for pair, _ in self.usage] + [pair for _, _, pair, _ in self.running]
        declared = FairTree.of(site.cluster.accounts, ()).leaf_of
        seen = [pair for pair in dict.fromkeys(seen) if pair not in declared]
        tree = FairTree.of(site.cluster.accounts, seen)
        usage = np.zeros(len(tree.leaf_of))
        for pair, used in self.usage:
            usage[tree.leaf_of[pair]] = used
        runs = [
            (job, RunningShare(start_s, tree.leaf_of[pair], cost))
            for job, start_s, pair, cost in self.running
        ]
        running = {job: share for job, share in runs if job >= 0}
        calculated_s = self.calculated_s
        if self.until_s is not None and self.until_s > calculated_s:
            every = [share for _, share in runs]
            usage = decayed(usage, every, calculated_s, self.until_s, p.decay_per_s)
            calculated_s, running = self.until_s, {}
        shares = FairShares(
            calculated_s, tuple(seen), tree, usage, running=MappingProxyType(running)
        )
        return shares.computed()


def until_of(kept: Kept) -> float | None:
    """Returns when a policy took over that keeps nothing, None if there was none."""
    return float(cast(float, kept[UNTIL_S])) if UNTIL_S in kept else None
