"""`--forecast available`: what a site would have, by policy and log.

A policy that uses no lengths is told none. One that keeps GPUs free until a time that it computes
(`reserves`) is told the users' time limits, as in Slurm, if most jobs have one: jobs end by
their limits, so its reservations hold. A job without one counts as long as the longest limit, as
that of a partition. The others are told lengths predicted from earlier jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.core.job import JobTable
from dovetail.core.policy import Policy, name_of, reads_limits, reserves
from dovetail.forecast.forecasts import EXPECTED, is_expected, source_of

AVAILABLE = "available"
MOST = 0.8
"""The share of jobs that must have a time limit for limits to be what a scheduler plans by."""


def available(policy: Policy, jobs: JobTable) -> str:
    """Returns the forecast that a site has for a policy: `limit`, `predicted` or `unknown`."""
    if "length" not in policy.knows:
        return "unknown"
    limits = reserves(policy) and limited_share(jobs) >= MOST
    return "limit" if limits else "predicted"


def resolved(forecast: str, policy: Policy, jobs: JobTable) -> str:
    """Returns a forecast that does not depend on the policy any more."""
    if source_of(forecast) != AVAILABLE:
        return forecast
    return available(policy, jobs) + (f",{EXPECTED}" if is_expected(forecast) else "")


def limited_share(jobs: JobTable) -> float:
    """Returns the share of the jobs that have a time limit."""
    return float(np.isfinite(jobs.time_limit_s).mean()) if len(jobs) else 0.0


def lengths_missing(forecast: str, policies: Sequence[Policy], jobs: JobTable) -> list[str]:
    """Returns what a trace lacks for policies to be told what a site tells them, as sentences."""
    if source_of(forecast) != AVAILABLE:
        return []
    predicted = [policy for policy in policies if available(policy, jobs) == "predicted"]
    planners = [name_of(policy) for policy in predicted if reserves(policy)]
    texts = []
    if planners:
        share = limited_share(jobs)
        few = "No job has a time limit" if not share else f"{share:.0%} of jobs have a time limit"
        texts.append(
            f"{few}, so {', '.join(planners)} cannot plan by limits as Slurm does and gets "
            "predicted lengths."
        )
    nameless = (jobs.user.codes < 0).all() and (jobs.recurrence.codes < 0).all()
    if predicted and len(jobs) and nameless:
        texts.append(
            "The trace names no users, so lengths are predicted from the requests alone, which is "
            "little better than a guess."
        )
    return texts


LENGTHS = {
    "known": "known (the true ones)",
    "limit": "the users' time limits",
    "predicted": "predicted from earlier jobs",
    "unknown": "not used",
}
"""What lengths are to a policy, by the source of `lengths_of`."""


def lengths_of(policy: Policy, forecast: str, jobs: JobTable) -> str:
    """Returns where a policy's lengths are from: a forecast, or `unknown` if it uses none.

    One that reads the limits itself has `limit`, whatever the forecast.
    """
    if "length" in policy.knows:
        return resolved(forecast, policy, jobs)
    return "limit" if reads_limits(policy) else "unknown"


def lengths_words(policy: Policy, forecast: str, jobs: JobTable) -> str:
    """Returns the source of the job lengths that a policy gets, in words."""
    told = lengths_of(policy, forecast, jobs)
    words = LENGTHS.get(source_of(told), told)
    mean = is_expected(told) and source_of(told) not in ("known", "unknown")
    return f"{words}, what is left as its mean" if mean else words


def told_words(forecast: str, policy: Policy, jobs: JobTable) -> list[str]:
    """Returns a note on the lengths that a policy gets by default."""
    if source_of(forecast) != AVAILABLE or lengths_of(policy, forecast, jobs) == "unknown":
        return []
    fixed = "length" not in policy.knows
    other = "no --forecast changes it" if fixed else "--forecast known: the true ones"
    return [f"Lengths are {lengths_words(policy, forecast, jobs)} ({other})."]
