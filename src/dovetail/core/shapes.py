"""The distinct shapes of a table of jobs, so that a pass over the queue tries each only once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dovetail.core.job import NO_LABEL, Floats, JobTable, Labels, Shape


def shapes_of(
    jobs: JobTable,
    *,
    by_host: bool,
    by: Sequence[str] = (),
    bounds_s: Floats | None = None,
    groups_of: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> tuple[list[int], tuple[Shape, ...]]:
    """Returns the shape number of each job, and the distinct shapes, fewest GPUs first.

    CPUs and memory count only where hosts limit them, labels only where tenants have limits by
    them, lengths (`bounds_s`) only where nodes are reserved, and `groups_of` has the node groups
    of queues that own some: the fewer shapes there are, the cheaper a pass over the queue.
    """
    n = len(jobs)
    nothing = np.zeros(n)
    owner = _owners(jobs.queue, groups_of)
    labels: dict[str, Labels] = {name: getattr(jobs, name) for name in ("gpu_type", "topology")}
    labels |= {name: getattr(jobs, name) for name in by}
    columns = (
        jobs.gpus.astype(float),
        *(label.codes.astype(float) for label in labels.values()),
        owner.codes.astype(float),
        jobs.cpus if by_host else nothing,
        jobs.memory_bytes if by_host else nothing,
        jobs.gpu_part,
        nothing + np.inf if bounds_s is None else bounds_s,
    )
    order = np.lexsort(columns[::-1])
    starts = np.ones(n, bool)
    ranked = [column[order] for column in columns]
    starts[1:] = np.any([c[1:] != c[:-1] for c in ranked], axis=0)
    number = np.empty(n, np.int64)
    number[order] = np.cumsum(starts) - 1
    shapes = tuple(
        Shape(
            int(jobs.gpus[job]),
            cpus=float(jobs.cpus[job]) if by_host else 0.0,
            memory_bytes=float(jobs.memory_bytes[job]) if by_host else 0.0,
            groups=groups_of.get(jobs.queue[job], ()),
            length_s=float(columns[-1][job]),
            gpu_part=float(jobs.gpu_part[job]),
            avoided=(),
            **{name: label[job] for name, label in labels.items()},
        )
        for job in order[starts].tolist()
    )
    return number.tolist(), shapes


def _owners(queue: Labels, groups_of: Mapping[str, tuple[str, ...]]) -> Labels:
    """Returns the node groups of each job's queue as labels, missing where it may use all."""
    owned = sorted({groups_of[name] for name in queue.names if name in groups_of})
    code_of = {groups: code for code, groups in enumerate(owned)}
    # The last entry is that of jobs without a queue, whose code is -1.
    codes = [code_of.get(groups_of.get(name, ()), NO_LABEL) for name in (*queue.names, "")]
    return Labels(np.array(codes, np.int32)[queue.codes], tuple(map("+".join, owned)))
