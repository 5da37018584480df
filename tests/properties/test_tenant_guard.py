"""Nobody waits beyond the guard while others start, over random policies, clusters and jobs.

A job is overdue when it waited longer than `guard-s`. It starts as soon as it fits, and nothing
that was due later starts on nodes that it may use: it waits for jobs that ran before, and for those
due before it. Only what no order can change keeps it: nodes that are reserved for others before it
would end, and the limits of its own queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from builders import Row, play
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.messages import Ended, Started, Stopped, Submitted
from dovetail.core.tenants import QueueSpec, ReservationSpec

SOON_S = 1.0
"""The policy asks again this soon after it stopped or started jobs itself."""
ROUNDED_S = 1e-6
GROUPS = (NodeGroup("big", 2, 4, "a100"), NodeGroup("small", 2, 2, "v100"))
NODES = tuple(
    (n, group) for group, start in zip(GROUPS, (0, 2), strict=True) for n in (start, start + 1)
)
FILLING = ("fifo", "fifo:bypass=skip", "backfill", "sjf")
STOPPING = ("srtf", "srsf", "tiresias", "gittins", "max-min", "afs-l", "themis", "optimus")
SHARING = ("a-srpt", "sjf-bsbf", "antman", "muri-s:tick-s=0", "gandiva")


@dataclass(frozen=True)
class Run:
    """What one run is made of, drawn from its seed."""

    rows: tuple[Row, ...]
    cluster: Cluster
    policy: str
    guard_s: float


def drawn_run(seed: int, inners: Sequence[str] = ()) -> Run:
    """Returns forty jobs of three queues, under every kind of inner policy in turn."""
    draw = np.random.default_rng(seed)
    inners = inners or (FILLING, FILLING, STOPPING, SHARING)[seed % 4]
    inner = str(draw.choice(inners))
    start_s = float(draw.uniform(50, 400))
    closed = tuple(sorted(draw.choice(4, 2, replace=False).tolist()))
    owns = ("big",) if draw.integers(2) else ()
    queues = (
        QueueSpec("prod", weight=3, tier=str(draw.choice(["guaranteed", "normal"]))),
        QueueSpec("dev", groups=owns, quota_gpus=int(draw.choice([0, 6]))),
        QueueSpec("spot", tier="spot", priority=float(draw.integers(0, 2))),
    )
    cluster = Cluster(
        GROUPS,
        queues=queues,
        reservations=(ReservationSpec("work", start_s, start_s + 150, closed),)
        if draw.integers(2)
        else (),
    )
    rows = []
    for submit_s in np.sort(draw.uniform(0, 600, 40)).tolist():
        queue = str(draw.choice(["prod", "dev", "spot"]))
        big = queue == "dev" and bool(queues[1].groups)
        kind = str(draw.choice(["", "a100"] if big else ["", "a100", "v100"]))
        gpus = int(draw.choice([1, 1, 2, 4, 6]))
        rows.append(
            Row(
                min(gpus, 4) if kind == "v100" else gpus,
                float(draw.integers(10, 150)),
                submit_s=submit_s,
                queue=queue,
                gpu_type=kind,
                shareable=True,
                preemptible=bool(draw.integers(0, 4)),
            )
        )
    guard_s = float(draw.choice([50, 150, 400]))
    min_run_s = float(draw.choice([0, 0, 40]))
    text = inner.replace(",", ";")
    policy = f"tenancy:inner={text},guard-s={guard_s:g},min-run-s={min_run_s:g}"
    return Run(tuple(rows), cluster, policy, guard_s)


def open_nodes(run: Run, job: int, now: float) -> dict[int, int]:
    """Returns the nodes that a job may use now, by its type, queue and the reservations."""
    row, found = run.rows[job], {}
    queue = next(q for q in run.cluster.queues if q.name == row.queue)
    for node, group in NODES:
        typed = not row.gpu_type or group.gpu_type == row.gpu_type
        owned = not queue.groups or group.name in queue.groups
        reserved = any(
            node in r.nodes and r.start_s < now + row.duration_s and r.end_s > now
            for r in run.cluster.reservations
        )
        if typed and owned and not reserved:
            found[node] = group.gpus_per_node
    return found


def held_by(run: Run, queue: str, running: dict[int, dict[int, int]]) -> int:
    return sum(sum(p.values()) for job, p in running.items() if run.rows[job].queue == queue)


def may_start(
    run: Run, overdue: Sequence[int], running: dict[int, dict[int, int]], now: float
) -> list[int]:
    """Returns the jobs that nothing but other jobs keeps from their GPUs.

    What its queue may hold is for those that were due first, and a job that the limit of its queue
    keeps waiting keeps the later ones of the queue waiting.
    """
    found: list[int] = []
    closed = set()
    for job in overdue:
        row = run.rows[job]
        queue = next(q for q in run.cluster.queues if q.name == row.queue)
        if sum(open_nodes(run, job, now).values()) < row.gpus or row.queue in closed:
            continue
        most = queue.quota_gpus
        first = sum(run.rows[j].gpus for j in found if run.rows[j].queue == row.queue)
        if most and held_by(run, row.queue, running) + first + row.gpus > most:
            closed.add(row.queue)
        else:
            found.append(job)
    return found


def check_guard(run: Run) -> None:
    story = play(run.rows, run.policy, run.cluster)
    due: dict[int, float] = {}
    running: dict[int, dict[int, int]] = {}
    fits_since: dict[int, float] = {}
    for batch in story.batches:
        now = batch[0].t
        for job, since_s in fits_since.items():
            assert now - since_s <= SOON_S + ROUNDED_S, ("fits and waits", job, since_s, now, run)
        for fact in batch:
            if isinstance(fact, Ended):
                running.pop(fact.job, None)
                due.pop(fact.job, None)
            elif isinstance(fact, Submitted):
                due[fact.job] = now + run.guard_s
        # What holds an overdue job back when the policy decides.
        waits = may_start(run, overdue(due, now), running, now)
        was_due = dict(due)
        for fact in batch:
            if isinstance(fact, Started):
                due.pop(fact.job, None)
                running[fact.job] = fact.placement.by_node()
            elif isinstance(fact, Stopped):
                running.pop(fact.job)
                due[fact.job] = now + run.guard_s
        begun = [job for job in was_due if job not in due]
        for job in waits:
            mine = set(open_nodes(run, job, now)) if job in due else set()
            for other in begun:
                fair = was_due[other] <= was_due[job] or not mine & set(running[other])
                assert fair, ("overtaken", job, other, now, run)
        first = may_start(run, overdue(due, now), running, now)[:1]
        fits_since = {j: fits_since.get(j, now) for j in first if fits(run, j, running, now)}


def overdue(due: dict[int, float], now: float) -> list[int]:
    """Returns the jobs that the policy knows to be overdue, the longest first."""
    return [job for job in sorted(due, key=lambda j: (due[j], j)) if due[job] <= now - SOON_S]


def fits(run: Run, job: int, running: dict[int, dict[int, int]], now: float) -> bool:
    """Returns whether enough GPUs are free on the nodes that a job may use."""
    free = open_nodes(run, job, now)
    for placement in running.values():
        for node, gpus in placement.items():
            if node in free:
                free[node] -= gpus
    return sum(max(0, gpus) for gpus in free.values()) >= run.rows[job].gpus


@pytest.mark.parametrize("seed", range(32))
def test_nobody_waits_beyond_the_guard(seed: int) -> None:
    check_guard(drawn_run(seed))


@pytest.mark.slow
def test_nobody_waits_beyond_the_guard_in_a_thousand_random_runs() -> None:
    for seed in range(32, 1032):
        check_guard(drawn_run(seed))
