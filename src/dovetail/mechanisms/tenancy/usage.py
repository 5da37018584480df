"""What each tenant has used of late: GPUs on average, older use counting less by a half-life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from dovetail.core.job import Floats
from dovetail.core.policy import Kept
from dovetail.core.tenant_tree import TenantTree, qos_values
from dovetail.core.view import View

Path = tuple[str, ...]
LEAST_GPUS = 1e-9
"""Use below this is forgotten, so that tenants who left do not stay in memory."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The decayed mean GPUs of tenants up to `t`, and what they hold from then on, by path."""

    t: float = 0.0
    mean_gpus: tuple[tuple[Path, float], ...] = ()
    held_gpus: tuple[tuple[Path, float], ...] = ()

    @staticmethod
    def after(t: float, mean: Mapping[Path, float], tree: TenantTree, held: Floats) -> Usage:
        """Returns the use up to `t`, and what leaves of the tree hold from then on."""
        leaves = np.flatnonzero(held).tolist()
        holds = sorted((tree.tenants[leaf].path, float(held[leaf])) for leaf in leaves)
        return Usage(t, tuple(mean.items()), tuple(holds))

    def kept(self) -> Kept:
        """Returns the use as values for JSON."""
        return {"t": self.t, "mean_gpus": self.mean_gpus, "held_gpus": self.held_gpus}

    @staticmethod
    def recalled(kept: Kept) -> Usage:
        """Returns the use of such values. Raises TypeError, ValueError or LookupError."""

        def pairs(name: str) -> tuple[tuple[Path, float], ...]:
            rows = cast("Sequence[tuple[Sequence[str], float]]", kept[name])
            return tuple((tuple(map(str, path)), float(gpus)) for path, gpus in rows)

        return Usage(float(cast(float, kept["t"])), pairs("mean_gpus"), pairs("held_gpus"))

    def until(self, now: float, half_life_s: float) -> dict[Path, float]:
        """Returns the mean GPUs by now."""
        keep = 0.5 ** ((now - self.t) / half_life_s)
        mean = {path: gpus * keep for path, gpus in self.mean_gpus}
        for path, gpus in self.held_gpus:
            mean[path] = mean.get(path, 0.0) + gpus * (1 - keep)
        return {path: gpus for path, gpus in sorted(mean.items()) if gpus > LEAST_GPUS}


NO_USE = Usage()


def charged(view: View, tree: TenantTree, held: Mapping[int, float]) -> Floats:
    """Returns the GPUs that count as used by each leaf, by what jobs hold and their QOS."""
    rows = np.fromiter(held, np.int64, len(held))
    gpus = np.fromiter(held.values(), np.float64, len(held))
    factor_of = {name: factor for name, (_, factor) in qos_values(view.cluster).items()}
    if any(factor != 1 for factor in factor_of.values()):
        gpus *= [factor_of.get(view.jobs.qos[job], 1.0) for job in rows.tolist()]
    leaves = tree.leaves(view.jobs, rows)
    return np.asarray(np.bincount(leaves, gpus, minlength=len(tree)), np.float64)
