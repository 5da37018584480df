"""Theorem 1 of A-SRPT: how far from the best its total completion time can be at worst."""

from __future__ import annotations


def worst_ratio(
    *,
    gpus: int,
    widest_gpus: int,
    placement_ratio: float,
    iteration_ratio: float,
    mean_error_iterations: float,
    tau: float,
) -> float:
    """Returns the bound on A-SRPT's total completion time over the least possible.

    (A-SRPT Theorem 1): `placement_ratio` is rho, the most that a job's worst placement slows it;
    `iteration_ratio` the longest iteration of any job, worst placed, over the shortest of any,
    best placed; the error is the mean of |iterations - predicted|. Raises ValueError where the
    theorem says nothing: a job as wide as the cluster, or ratios below 1.
    """
    if not 0 < widest_gpus < gpus:
        raise ValueError(f"the theorem needs jobs narrower than the cluster: {widest_gpus}, {gpus}")
    if placement_ratio < 1 or iteration_ratio < 1:
        raise ValueError("a worst placement is at least as slow as the best")
    if mean_error_iterations < 0 or tau < 0:
        raise ValueError("errors and waits are not negative")
    rho = placement_ratio
    share = gpus / (gpus - widest_gpus)
    exact = (2.0 + tau + rho * share) * rho
    missed = 2.0 * rho * widest_gpus * iteration_ratio * (1.0 + tau + (1.0 + rho) * share)
    return exact + missed * mean_error_iterations
