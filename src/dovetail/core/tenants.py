"""Who shares the cluster: queues, accounts, QOS and reservations, as a cluster's file states them.

These are values. Limits among them are legality (`core.legality`); order, borrowing and reclaim
are left to policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

GpusByType = tuple[tuple[str, int], ...]
"""GPUs by type, in the order of the file; the type "" is GPUs of any type."""
GUARANTEED, NORMAL, SPOT = "guaranteed", "normal", "spot"
TIERS = (GUARANTEED, NORMAL, SPOT)
"""Who loses GPUs last, to whom lent GPUs return first."""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue (Slurm: partition) in the tree of queues.

    `quota_gpus` is the most GPUs its jobs may hold, 0 for no limit; `limits` the same by type.
    `guaranteed` GPUs are lent while they idle and come back on demand. `groups` are the node
    groups where its jobs may run; none means all. `weight` divides what is left among siblings.
    """

    name: str
    quota_gpus: int = 0
    priority: float = 0.0
    parent: str = ""
    groups: tuple[str, ...] = ()
    weight: float = 1.0
    guaranteed: GpusByType = ()
    limits: GpusByType = ()
    tier: str = NORMAL


@dataclass(frozen=True, slots=True)
class AccountSpec:
    """An account (Slurm: association) in the tree of accounts, with its users and their shares.

    `users` are (user, shares) pairs; none means that anybody may use it. Limits are GPUs held at
    one time, 0 for no limit.
    """

    name: str
    parent: str = ""
    shares: int = 1
    users: tuple[tuple[str, int], ...] = ()
    max_gpus: int = 0
    max_gpus_per_user: int = 0


@dataclass(frozen=True, slots=True)
class QosSpec:
    """A quality of service. `preempts` names the QOS whose jobs its jobs may stop."""

    name: str
    priority: float = 0.0
    preempts: tuple[str, ...] = ()
    usage_factor: float = 1.0
    max_gpus: int = 0
    max_gpus_per_user: int = 0
    max_jobs_per_user: int = 0
    max_time_s: float = inf


@dataclass(frozen=True, slots=True)
class ReservationSpec:
    """Nodes set aside from `start_s` to `end_s` for some accounts and users, or for maintenance.

    Nobody may use the nodes of a reservation without accounts and users: that is maintenance.
    """

    name: str
    start_s: float
    end_s: float
    nodes: tuple[int, ...]
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
