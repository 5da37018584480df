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
from dovetail.core.policy import Policy, name_of, reserves

AVAILABLE = "available"
MOST = 0.8
"""The share of jobs that must have a time limit for limits to be what a scheduler plans by."""


def available(policy: Policy, jobs: JobTable) -> str:
    """Returns the forecast that a site has for a policy: `limit`, `predicted` or `unknown`."""
    if "length" not in policy.knows:
        return "unknown"
    limits = reserves(policy) and _limited_share(jobs) >= MOST
    return "limit" if limits else "predicted"


def resolved(forecast: str, policy: Policy, jobs: JobTable) -> str:
    """Returns a forecast that does not depend on the policy any more."""
    return available(policy, jobs) if forecast == AVAILABLE else forecast


def _limited_share(jobs: JobTable) -> float:
    return float(np.isfinite(jobs.time_limit_s).mean()) if len(jobs) else 0.0


def lengths_missing(forecast: str, policies: Sequence[Policy], jobs: JobTable) -> list[str]:
    """Returns what a trace lacks for policies to be told what a site tells them, as sentences."""
    if forecast != AVAILABLE:
        return []
    predicted = [policy for policy in policies if available(policy, jobs) == "predicted"]
    planners = [name_of(policy) for policy in predicted if reserves(policy)]
    texts = []
    if planners:
        share = _limited_share(jobs)
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


WORDS = {"limit": "the users' time limits", "predicted": "predictions from earlier jobs"}
"""What lengths are that a site has."""


def told_words(forecast: str, policy: Policy, jobs: JobTable) -> list[str]:
    """Returns a note on the lengths that a policy is told, if that depends on the policy."""
    told = WORDS.get(available(policy, jobs)) if forecast == AVAILABLE else None
    return [f"Lengths are {told} (--forecast known: the true ones)."] if told else []
