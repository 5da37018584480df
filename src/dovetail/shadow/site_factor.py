"""Hands a policy's order to Slurm by the site factor, a term that Slurm adds to a job's priority.

Only an administrator or operator may set it. It is undone by setting 0. Slurm keeps its own rules:
the order decides who is tried first, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.core.errors import InputError
from dovetail.shadow.advice import Advice
from dovetail.shadow.slurm_commands import answer
from dovetail.shadow.snapshot import Snapshot

SITE_FACTOR_MAX = 1_000_000_000
"""Slurm refuses site factors beyond plus and minus this; it stores them around an offset."""
GAP_LEAST = 1000.0


@dataclass(frozen=True, slots=True)
class SitePriority:
    """The priority of a waiting job in Slurm, and the site factor that is part of it."""

    slurm_id: str
    priority: float
    site_factor: int

    @property
    def own(self) -> float:
        """Returns the priority without the site factor."""
        return self.priority - self.site_factor


def priorities() -> dict[str, SitePriority]:
    """Returns the priorities of the waiting jobs by id, as `sprio` has them. Raises InputError."""
    found: dict[str, SitePriority] = {}
    for line in answer("sprio", "--noheader", "--format", "%i %Y %S").splitlines():
        words = line.split()
        try:
            job, priority, factor = words[0], float(words[1]), int(words[2])
        except (IndexError, ValueError):
            raise InputError(
                "sprio", f"unexpected line '{line}'", "is it Slurm 22.05 or later?"
            ) from None
        found.setdefault(job, SitePriority(job, priority, factor))
    return found


def factors(order: Sequence[str], known: dict[str, SitePriority]) -> dict[str, int]:
    """Returns a site factor for each waiting job so that Slurm tries them in this order.

    The gap between two jobs is larger than their own priorities can differ, now or later: twice
    what they differ by now. Raises InputError if there are too many jobs for such gaps.
    """
    listed = [job for job in dict.fromkeys(order) if job in known]
    if not listed:
        return {}
    own = [known[job].own for job in listed]
    gap = max(GAP_LEAST, 2 * (max(own) - min(own)))
    if gap * len(listed) > SITE_FACTOR_MAX:
        raise InputError(
            "--act order",
            f"{len(listed)} jobs with priorities {max(own) - min(own):g} apart need more than "
            f"Slurm's largest site factor",
            "lower the weights of PriorityType=priority/multifactor",
        )
    return {job: int(gap * (len(listed) - rank)) for rank, job in enumerate(listed)}


def slurm_ids(advice: Advice, snapshot: Snapshot) -> list[str]:
    """Returns the ids of the waiting jobs in the policy's order; an array goes as one."""
    ids = {job.job_id: job.slurm_id for job in snapshot.jobs}
    return list(dict.fromkeys(ids[job] for job in advice.order))


def commands(wanted: dict[str, int], known: dict[str, SitePriority]) -> list[tuple[str, ...]]:
    """Returns the commands that set site factors, without those that are set already."""
    return [
        ("scontrol", "update", f"jobid={job}", f"sitefactor={factor}")
        for job, factor in wanted.items()
        if known[job].site_factor != factor
    ]


def undone(known: dict[str, SitePriority]) -> dict[str, int]:
    """Returns a site factor of 0 for every waiting job that has another."""
    return {job: 0 for job, priority in known.items() if priority.site_factor}


def carry_out(lines: Sequence[tuple[str, ...]]) -> None:
    """Runs the commands. Raises InputError at the first that Slurm refuses.

    A job that has started meanwhile has no priority any more, and is no error.
    """
    for line in lines:
        try:
            answer(*line)
        except InputError as error:
            if "no longer pending" in error.what or "Invalid job id" in error.what:
                continue
            mend = "only an administrator or operator of Slurm may set site factors"
            raise InputError(" ".join(line), error.what, mend) from None
