"""Decayed usage of associations: what each has used, the older the less.

At each PriorityCalcPeriod the stored usage shrinks by the decay of that time, and what running
jobs used since is added, decayed over the whole of it, as Slurm does; the rest of a job when it
ends. All times are whole seconds, as in Slurm: users may tie.

Source: `priority_multifactor.c`, `_decay_thread`, `_apply_decay` and `_apply_new_usage`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor
from typing import NamedTuple

from dovetail.core.job import Floats, JobTable
from dovetail.mechanisms.slurm.parameters import SlurmParameters
from dovetail.mechanisms.slurm.site import NO_QOS, Site


class RunningShare(NamedTuple):
    """A running job: since when, whose it is, and what it is billed a second."""

    start_s: float
    leaf: int
    billed_per_s: float


def billed_per_s(parameters: SlurmParameters, site: Site, table: JobTable, job: int) -> float:
    """Returns what a job is billed a second: TRESBillingWeights and the factor of its QOS."""
    tres = parameters.billing_gpu * int(table.gpus[job])
    tres += parameters.billing_cpu * float(table.cpus[job])
    return tres * site.qos.get(table.qos[job], NO_QOS).usage_factor


def whole_s(at_s: float) -> int:
    """Returns the second in which a time falls."""
    return floor(at_s + 1e-6)


def used_since(share: RunningShare, then_s: float, now: float, decay_per_s: float) -> float:
    """Returns what a job is billed for the time after `then_s`, or after its start."""
    ran_s = max(0, whole_s(now) - whole_s(max(then_s, share.start_s)))
    return float(ran_s * decay_per_s**ran_s * share.billed_per_s)


def decayed(
    usage: Floats,
    running: Iterable[RunningShare],
    then_s: float,
    now: float,
    decay_per_s: float,
) -> Floats:
    """Returns the usage at a computation, the one before being at `then_s`."""
    result: Floats = usage * decay_per_s ** (whole_s(now) - whole_s(then_s))
    for share in running:
        result[share.leaf] += used_since(share, then_s, now, decay_per_s)
    return result
