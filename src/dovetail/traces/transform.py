"""Derives traces from traces: slices, loads, compressed time, models and flags.

Every function returns a new trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Bools, Floats, Ints, Labels
from dovetail.core.trace import Recorded, Trace
from dovetail.core.units import DAY_S
from dovetail.traces.assemble import SECONDS_MAX, SUBMIT_MAX_S

WINDOW_MEASURES = ("gpu-seconds", "arrivals")


def offered_load(trace: Trace, gpus: int) -> float:
    """Returns the requested GPU-seconds divided by those of `gpus` between first and last arrival.

    Infinite if all jobs arrive at once.
    """
    span_s = _span_s(trace)
    return gpu_seconds(trace) / (gpus * span_s) if span_s > 0 else float("inf")


def gpu_seconds(trace: Trace) -> float:
    """Returns the GPU-seconds that all jobs request."""
    return float((trace.jobs.asked_gpus * trace.duration_s).sum())


def gpus_for_load(trace: Trace, load: float) -> int:
    """Returns the number of GPUs on which the trace offers a load. Raises InputError."""
    _positive("load", load)
    span_s = _span_s(trace)
    if span_s <= 0:
        raise InputError("load", "is undefined when all jobs arrive at once")
    return max(1, round(gpu_seconds(trace) / (load * span_s)))


def busiest_window(trace: Trace, days: float, *, by: str = "gpu-seconds") -> Trace:
    """Returns the jobs of the window of `days` with the most work or jobs, from second 0 on.

    `by` is `gpu-seconds` or `arrivals`. Windows begin at a submission. Raises InputError.
    """
    if by not in WINDOW_MEASURES:
        raise InputError(f"measure '{by}'", "is unknown", nearest(by, WINDOW_MEASURES))
    _positive("days", days)
    submit = trace.jobs.submit_s
    work = trace.jobs.asked_gpus * trace.duration_s
    amount = work if by == "gpu-seconds" else np.ones(len(trace))
    total = np.concatenate(([0.0], np.cumsum(amount)))
    ends = np.searchsorted(submit, submit + days * DAY_S, side="left")
    starts = np.arange(len(trace))
    best = int(np.argmax(total[ends] - total[starts])) if len(trace) else 0
    first = int(np.searchsorted(submit, submit[best], side="left"))
    return rebased(trace.take(np.arange(first, ends[best])))


def time_window(trace: Trace, from_s: float, to_s: float) -> Trace:
    """Returns the jobs submitted in [from_s, to_s), with unchanged times. Raises InputError."""
    if not from_s < to_s:
        raise InputError("window", f"from {from_s:g} s to {to_s:g} s is empty")
    low, high = np.searchsorted(trace.jobs.submit_s, (from_s, to_s), side="left")
    return trace.take(np.arange(low, high))


def first_jobs(trace: Trace, jobs: int) -> Trace:
    """Returns the first `jobs` jobs, or all if there are fewer. Raises InputError."""
    if jobs < 1:
        raise InputError("jobs", f"{jobs} is not a number of jobs")
    return trace.take(np.arange(min(jobs, len(trace))))


def in_queues(trace: Trace, queues: Sequence[str]) -> Trace:
    """Returns the jobs of some queues (virtual clusters). Raises InputError for an unknown one."""
    names = trace.jobs.queue.names
    for queue in queues:
        if queue not in names:
            raise InputError(f"queue '{queue}'", "is not in the trace", nearest(queue, names))
    codes = [names.index(queue) for queue in queues]
    return trace.take(np.flatnonzero(np.isin(trace.jobs.queue.codes, codes)))


def rebased(trace: Trace) -> Trace:
    """Returns the trace with its first submission at second 0."""
    if not len(trace):
        return trace
    first_s = float(trace.jobs.submit_s[0])
    moved = _retimed(trace, trace.jobs.submit_s - first_s, 1.0)
    moved = replace(moved, recorded=_recorded(trace, -first_s, 1.0))
    epoch_s = None if trace.imported is None else trace.imported.epoch_s
    return moved if epoch_s is None else _dated(moved, epoch_s + first_s)


def thinned(trace: Trace, keep: float, *, seed: int) -> Trace:
    """Returns the trace with each job kept with probability `keep`. Raises InputError."""
    if not 0 < keep <= 1:
        raise InputError("keep", f"{keep:g} is not a share above 0 and up to 1")
    drawn = np.random.default_rng(seed).uniform(size=len(trace)) < keep
    return replace(trace.take(np.flatnonzero(drawn)), recorded=None)


def stretched(trace: Trace, factor: float) -> Trace:
    """Returns the trace with `factor` times the gaps between submissions; run times stay."""
    _positive("factor", factor)
    start = trace.jobs.submit_s[0] if len(trace) else 0.0
    return _retimed(trace, start + (trace.jobs.submit_s - start) * factor, 1.0)


def compressed(trace: Trace, factor: float) -> Trace:
    """Returns the trace with all times divided by `factor`."""
    _positive("factor", factor)
    moved = _retimed(trace, trace.jobs.submit_s / factor, 1.0 / factor)
    return replace(moved, recorded=_recorded(trace, 0.0, 1.0 / factor))


def with_load(trace: Trace, load: float, gpus: int, *, by: str = "time", seed: int = 0) -> Trace:
    """Returns the trace with an offered load on `gpus`, by `time` (stretch) or by `thinning`.

    Thinning removes jobs at random: it keeps all times, and can only lower the load.
    Raises InputError.
    """
    _positive("load", load)
    now = offered_load(trace, gpus)
    if not np.isfinite(now):
        raise InputError("load", "is undefined when all jobs arrive at once")
    if by == "time":
        return stretched(trace, now / load)
    if by != "thinning":
        raise InputError(f"method '{by}'", "is unknown", nearest(by, ("time", "thinning")))
    if load > now:
        raise InputError("load", f"is {now:.3f} now; thinning cannot raise it", "use --by time")
    return thinned(trace, load / now, seed=seed)


def assign_models(trace: Trace, models: Sequence[tuple[str, int]], *, seed: int) -> Trace:
    """Returns the trace with a random model per job, uniform among those that can use its GPUs.

    `models` are (name, most GPUs), as in the AFS traces; a job too large for all gets no model.
    """
    if not models:
        raise InputError("models", "the list is empty")
    ordered = sorted(models, key=lambda m: (-m[1], m[0]))
    names = tuple(sorted(name for name, _ in ordered))
    most = np.array([gpus for _, gpus in ordered])
    position = np.array([names.index(name) for name, _ in ordered], dtype=np.int32)
    able = (most[None, :] >= np.unique(trace.jobs.gpus)[:, None]).sum(axis=1)
    choices = able[np.searchsorted(np.unique(trace.jobs.gpus), trace.jobs.gpus)]
    pick = (np.random.default_rng(seed).uniform(size=len(trace)) * choices).astype(np.int64)
    codes = np.where(choices > 0, position[pick], -1).astype(np.int32)
    return replace(trace, jobs=replace(trace.jobs, model=Labels(codes, names)))


def adopted(
    trace: Trace,
    *,
    elastic: float = 0.0,
    shareable: float = 0.0,
    seed: int,
    max_gpus: Callable[[str], int] | None = None,
) -> Trace:
    """Returns the trace with a random share of jobs flagged as elastic and as shareable.

    An elastic job runs on one GPU or more. Its largest number of GPUs is `max_gpus` of its model (0
    for an unknown model), else its own `max_gpus` if that is above its request, else twice its
    request. A job that is elastic at one share is elastic at every larger one.
    """
    for name, share in (("elastic", elastic), ("shareable", shareable)):
        if not 0 <= share <= 1:
            raise InputError(name, f"{share:g} is not a share between 0 and 1")
    rng = np.random.default_rng(seed)
    stretchy: Bools = rng.uniform(size=len(trace)) < elastic
    sharing: Bools = rng.uniform(size=len(trace)) < shareable
    jobs = trace.jobs
    table = replace(
        jobs,
        elastic=jobs.elastic | stretchy,
        shareable=jobs.shareable | sharing,
        min_gpus=np.where(stretchy, 1, jobs.min_gpus),
        max_gpus=np.where(stretchy, _most_gpus(trace, max_gpus), jobs.max_gpus),
    )
    return replace(trace, jobs=table)


def _most_gpus(trace: Trace, max_gpus: Callable[[str], int] | None) -> Ints:
    jobs = trace.jobs
    # An explicit maximum in the trace takes precedence.
    own = np.where(jobs.max_gpus > jobs.gpus, jobs.max_gpus, 2 * jobs.gpus)
    if max_gpus is None:
        return own
    table = np.array([*(max_gpus(name) for name in jobs.model.names), 0], dtype=np.int64)
    known = table[jobs.model.codes]
    return np.where(known > 0, np.maximum(known, jobs.gpus), own)


def _retimed(trace: Trace, submit_s: Floats, scale: float) -> Trace:
    """Returns the trace with new submission times, and all durations multiplied by `scale`.

    What was recorded of starts is left out: it belongs to the times before.
    """
    jobs = trace.jobs
    too_long = len(jobs) and (
        float(submit_s[-1]) > SUBMIT_MAX_S or float(trace.duration_s.max()) * scale > SECONDS_MAX
    )
    if too_long:
        raise InputError(
            "factor",
            f"submissions would be later than {SUBMIT_MAX_S:g} s, or jobs longer than "
            f"{SECONDS_MAX:g} s",
        )
    slack = jobs.deadline_s - jobs.submit_s
    table = replace(
        jobs,
        submit_s=submit_s,
        deadline_s=submit_s + slack * scale,
        time_limit_s=jobs.time_limit_s * scale,
    )
    moved = replace(trace, jobs=table, duration_s=trace.duration_s * scale, recorded=None)
    return _dated(moved, None)


def _dated(trace: Trace, epoch_s: float | None) -> Trace:
    """Returns the trace with another date of second 0, None for no date."""
    if trace.imported is None:
        return trace
    return replace(trace, imported=replace(trace.imported, epoch_s=epoch_s))


def _recorded(trace: Trace, shift_s: float, scale: float) -> Recorded | None:
    return None if trace.recorded is None else trace.recorded.retimed(shift_s, scale)


def _span_s(trace: Trace) -> float:
    return float(trace.jobs.submit_s[-1] - trace.jobs.submit_s[0]) if len(trace) else 0.0


def _positive(name: str, value: float) -> None:
    if not (value > 0 and np.isfinite(value)):
        raise InputError(name, f"{value:g} is not a number above zero")
