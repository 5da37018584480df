"""A spot tier as a change: chosen jobs run on GPUs that nobody else wants, and give them back.

The tier is that of the tenancy policy: all other jobs are guaranteed the whole cluster (or what the
cluster's file guarantees them), spot jobs borrow what idles, and a stop gives it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Bools, Labels
from dovetail.core.policy import Policy
from dovetail.core.switching import Switching
from dovetail.core.tenants import SPOT, GpusByType, QueueSpec, installed_by_type
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.policies.tenancy import Tenancy

REGULAR = "regular"
"""The queue of all other jobs where the cluster's file guarantees nothing to anybody."""
_AS_IN = "as in queue=batch, user=ann|bob, gpus<=2&hours<=4, or queue=batch@32 for at most 32 GPUs"
_CONDITION = re.compile(r"(?P<what>[a-z]+)(?P<sign><=|>=|=|<|>)(?P<value>[^<>=]+)", re.ASCII)
_SIGNS: Mapping[str, np.ufunc] = {
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "<": np.less,
    ">": np.greater,
    "=": np.equal,
}
NAMES, NUMBERS = ("user", "queue", "account"), ("gpus", "hours")


@dataclass(frozen=True, slots=True)
class SpotCondition:
    """One condition on a job: names of its user, queue or account, or its GPUs or hours."""

    what: str
    sign: str
    names: tuple[str, ...] = ()
    number: float = 0.0

    def rows(self, trace: Trace) -> Bools:
        """Returns the jobs that meet it; hours are the run time in the log. Raises InputError."""
        if self.what in NAMES:
            texts = getattr(trace.jobs, self.what).texts()
            known = sorted({text for text in texts if text})
            for name in self.names:
                if name not in known:
                    mend = nearest(name, known) if known else f"its jobs name no {self.what}"
                    raise InputError("--spot", f"no job is of {self.what} '{name}'", mend)
            return np.array([text in self.names for text in texts])
        values = trace.jobs.gpus if self.what == "gpus" else trace.duration_s / HOUR_S
        return np.asarray(_SIGNS[self.sign](values, self.number), dtype=bool)


@dataclass(frozen=True, slots=True)
class SpotTier:
    """Which jobs become spot jobs, and the most GPUs that they may hold at one time, 0 for all.

    After a stop a job repeats `repeated_s` of work on average: half of the time between its
    checkpoints, or nothing if it saves when it is told to stop.
    """

    text: str
    conditions: tuple[SpotCondition, ...]
    most_gpus: int = 0
    repeated_s: float = 0.0

    def rows(self, trace: Trace) -> Bools:
        """Returns the spot jobs. Raises InputError if there are none."""
        chosen = np.ones(len(trace), bool)
        for condition in self.conditions:
            chosen &= condition.rows(trace)
        if not chosen.any():
            raise InputError("--spot", f"no job is meant by '{self.text}'", _AS_IN)
        if chosen.all():
            mend = "leave some jobs that keep their GPUs"
            raise InputError("--spot", f"all jobs are meant by '{self.text}'", mend)
        return chosen

    def retold(self, trace: Trace, cluster: Cluster) -> Trace:
        """Returns the trace with the spot jobs in the spot queue, where they may be stopped."""
        chosen, jobs = self.rows(trace), trace.jobs
        known = {queue.name for queue in cluster.queues}
        home = "" if _promised(cluster) else REGULAR
        names = [
            _spot_name(cluster) if spot else name if name in known else home
            for spot, name in zip(chosen.tolist(), jobs.queue.texts(), strict=True)
        ]
        table = replace(jobs, queue=Labels.of(names), preemptible=jobs.preemptible | chosen)
        return replace(trace, jobs=table)

    def beside(self, cluster: Cluster) -> Cluster:
        """Returns the cluster with a spot queue beside the guarantees of all others."""
        queues, name = list(cluster.queues), _spot_name(cluster)
        if not _promised(cluster):
            if any(queue.name == REGULAR for queue in queues):
                what = f"a queue is called '{REGULAR}', as the others would be together"
                raise InputError("--spot", what, "rename it, or guarantee it GPUs in the file")
            queues = [
                queue if queue.parent or queue.tier == SPOT else replace(queue, parent=REGULAR)
                for queue in queues
            ]
            queues.append(QueueSpec(REGULAR, guaranteed=_all_of(cluster)))
        limits = (("", self.most_gpus),) if self.most_gpus else ()
        own = next((q for q in queues if q.name == name), QueueSpec(name, tier=SPOT))
        others = [queue for queue in queues if queue.name != name]
        spot = replace(own, limits=limits or own.limits)
        return replace(cluster, queues=(*others, spot))

    def switching(self, usual: Switching) -> Switching:
        """Returns the costs of a run, with the work that a stopped job repeats."""
        return replace(usual, resume_s=usual.resume_s + self.repeated_s)


def with_turns(policy: Policy) -> Policy:
    """Returns the policy with tenants around it, which the tier needs."""
    return policy if isinstance(policy, Tenancy) else Tenancy(inner=policy)


def parse_spot(text: str, repeated_s: float = 0.0) -> SpotTier:
    """Returns a tier of a text like `gpus<=2&hours<=4@32`. Raises InputError."""
    chosen, at, most = text.rpartition("@")
    if not at:
        chosen, most = most, "0"
    if not most.strip().isdecimal() or (at and not int(most)):
        raise InputError("--spot", f"'{most}' is not a number of GPUs", _AS_IN)
    conditions = tuple(_condition(text, part.strip()) for part in chosen.split("&"))
    return SpotTier(text, conditions, int(most), repeated_s)


def _condition(text: str, part: str) -> SpotCondition:
    match = _CONDITION.fullmatch(part)
    if match is None or match["what"] not in (*NAMES, *NUMBERS):
        raise InputError("--spot", f"'{part or text}' chooses no jobs", _AS_IN)
    what, sign, value = match["what"], match["sign"], match["value"].strip()
    if what in NAMES:
        if sign != "=":
            raise InputError("--spot", f"'{part}' compares names", f"as in {what}={value}")
        return SpotCondition(what, sign, tuple(name.strip() for name in value.split("|")))
    try:
        return SpotCondition(what, sign, number=float(value))
    except ValueError:
        raise InputError("--spot", f"'{value}' is not a number of {what}", _AS_IN) from None


def _promised(cluster: Cluster) -> bool:
    return any(queue.guaranteed for queue in cluster.queues)


def _spot_name(cluster: Cluster) -> str:
    """Returns the name of the queue of spot jobs: that of the file, if it has one."""
    return next((queue.name for queue in cluster.queues if queue.tier == SPOT), SPOT)


def _all_of(cluster: Cluster) -> GpusByType:
    """Returns all GPUs, by type where every node has one."""
    gpus = installed_by_type(cluster.groups)
    typed = all(group.gpu_type for group in cluster.groups if group.gpus_per_node)
    return tuple((kind, n) for kind, n in gpus.items() if n and bool(kind) == typed)
