"""Guaranteed GPUs come back in time, over random jobs, types, notices, budgets and drains.

A job is covered while its queue's running jobs, the waiting ones before it and itself are within
what is guaranteed to the queue. It then waits at most until the borrowers have run `min-run-s` and
had `grace-s` of notice, unless the log names for it an exhausted budget, jobs that may not be
stopped, or nodes that drain or are down.

An inner policy that stops, resizes or shares ranks the jobs of a queue by keys that the log does
not have. So a queue is judged as a whole: while each of its waiting jobs of a type would by itself
be within the guarantee, one of them starts in that time, whichever is first. And nobody stops a job
that is within its queue's guarantee after all that started in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from builders import Row, Story, play
from dovetail.core.cluster import DOWN, DRAINING, UP, Cluster, NodeGroup
from dovetail.core.messages import Ended, Explained, Reason, Started, Stopped, Submitted
from dovetail.core.policy import registered
from dovetail.core.tenants import QueueSpec
from dovetail.mechanisms.tenancy.reclaim import CLOSED, EXHAUSTED, LENT_FOR_GOOD

GROUPS = (NodeGroup("big", 3, 4, "a100"), NodeGroup("small", 2, 4, "v100"))
QUEUES = (
    QueueSpec("prod", guaranteed=(("a100", 6), ("v100", 2)), tier="guaranteed"),
    QueueSpec("lab", guaranteed=(("a100", 4), ("v100", 4))),
    QueueSpec("dev"),
    QueueSpec("spot", tier="spot"),
)
PROMISED = {(q.name, kind): gpus for q in QUEUES for kind, gpus in q.guaranteed}
INNERS = ("fifo:bypass=skip", "backfill", "fifo", "sjf")
STARTS_NOTHING, HAS_TENANTS = "no-op", {"tenancy"}
SOONER = {"muri-s": "muri-s:tick-s=0", "muri-l": "muri-l:tick-s=20", "gavel": "gavel:round=30"}
"""Policies that would decide once or twice in such a run."""
CATALOGUE = sorted({*registered()} - HAS_TENANTS - {STARTS_NOTHING})
REOPENED = (1, 14, 22, 28, 37, 39, 44, 50, 58)
"""Seeds in which inner policies once stopped or kept back what was guaranteed to another queue."""
SOON_S = 1.0
"""The policy asks again this soon after GPUs were given back."""
MAY_WAIT = {EXHAUSTED, LENT_FOR_GOOD, CLOSED}
ROUNDED_S = 1e-6


@dataclass(frozen=True)
class Run:
    """What one run is made of, drawn from its seed."""

    rows: tuple[Row, ...]
    min_run_s: float
    grace_s: float
    budget: int
    drained: bool
    inner: str
    capacity: tuple[tuple[float, tuple[tuple[int, str], ...]], ...] = ()

    @property
    def policy(self) -> str:
        """Returns the policy as it is typed."""
        return (
            f"tenancy:inner={self.inner.replace(',', ';')},min-run-s={self.min_run_s:g},"
            f"grace-s={self.grace_s:g},budget={self.budget}"
        )


def drawn_run(seed: int, inners: Sequence[str] = INNERS) -> Run:
    """Returns forty jobs of four queues, in three of four runs with a notice before each stop."""
    draw = np.random.default_rng(seed)
    rows = []
    for submit_s in np.sort(draw.uniform(0, 500, 40)).tolist():
        queue = str(draw.choice(["prod", "lab", "dev", "dev", "spot"]))
        kinds = ["a100", "v100"] if (queue, "a100") in PROMISED else ["a100", "v100", ""]
        rows.append(
            Row(
                int(draw.choice([1, 1, 2, 4])),
                float(draw.integers(10, 400)),
                submit_s=submit_s,
                queue=queue,
                gpu_type=str(draw.choice(kinds)),
                preemptible=seed % 8 != 7 or bool(draw.integers(0, 3)),
            )
        )
    drained = seed % 6 == 5
    at_s = sorted(draw.uniform(100, 600, 2).tolist())
    state = DRAINING if seed % 12 == 5 else DOWN
    node = int(draw.integers(0, 5))
    return Run(
        tuple(rows),
        float(draw.choice([0, 0, 60, 200])),
        float(draw.choice([0, 15, 45, 120])),
        int(draw.choice([0, 0, 0, 1, 2])),
        drained,
        inners[seed % len(inners)],
        ((at_s[0], ((node, state),)), (at_s[1], ((node, UP),))) if drained else (),
    )


@dataclass
class Moment:
    """Who waits and runs after the facts of one instant, and why."""

    t: float
    waiting: dict[int, float]
    running: dict[int, int]
    reasons: Sequence[Reason]


def moments(story: Story) -> Iterator[Moment]:
    """Yields the state after each instant."""
    waiting: dict[int, float] = {}
    running: dict[int, int] = {}
    reasons: Sequence[Reason] = ()
    for batch in story.batches:
        for fact in batch:
            if isinstance(fact, Started):
                waiting.pop(fact.job, None)
                running[fact.job] = fact.placement.gpus
            elif isinstance(fact, Stopped):
                running.pop(fact.job)
                waiting[fact.job] = fact.t
            elif isinstance(fact, Ended):
                running.pop(fact.job, None)
                waiting.pop(fact.job, None)
            elif isinstance(fact, Explained):
                reasons = fact.reasons
            elif isinstance(fact, Submitted):
                waiting[fact.job] = fact.t
        yield Moment(batch[0].t, waiting, running, reasons)


def covered(run: Run, now: Moment) -> Iterator[int]:
    """Yields the waiting jobs that are within what is guaranteed to their queue.

    The jobs of a queue and type keep their order, so one that is not covered closes them.
    """
    rows = run.rows
    held = dict.fromkeys(PROMISED, 0)
    closed = set()
    for job in now.running:
        key = rows[job].queue, rows[job].gpu_type
        if key in held:
            held[key] += now.running[job]
    order = (lambda j: (rows[j].duration_s, j)) if run.inner == "sjf" else (lambda j: (0.0, j))
    for job in sorted(now.waiting, key=order):
        key = rows[job].queue, rows[job].gpu_type
        if key not in PROMISED or key in closed:
            continue
        if held[key] + rows[job].gpus > PROMISED[key]:
            closed.add(key)
            continue
        held[key] += rows[job].gpus
        yield job


def check_guarantees(run: Run) -> set[str]:
    """Fails if a covered job waits too long; returns the reasons that the log gave."""
    story = play(run.rows, run.policy, Cluster(GROUPS, queues=QUEUES), capacity=run.capacity)
    most_s = max(run.min_run_s, run.grace_s) + ROUNDED_S
    since: dict[int, float] = {}
    named: set[str] = set()
    for now in moments(story):
        for job, began_s in since.items():
            assert now.t - began_s <= most_s, (job, began_s, now.t, run)
        excused = {r.job for r in now.reasons if r.code in MAY_WAIT}
        named |= {r.code for r in now.reasons}
        waits = [job for job in covered(run, now) if job not in excused]
        since = {job: since.get(job, now.t) for job in waits}
    assert run.budget or EXHAUSTED not in named
    assert run.drained or CLOSED not in named
    assert not all(row.preemptible for row in run.rows) or LENT_FOR_GOOD not in named
    return named


@pytest.mark.parametrize("seed", range(24))
def test_guaranteed_gpus_come_back_in_time(seed: int) -> None:
    check_guarantees(drawn_run(seed))


@pytest.mark.slow
def test_hundreds_of_random_runs_keep_the_guarantees() -> None:
    named = {code for seed in range(24, 424) for code in check_guarantees(drawn_run(seed))}
    # Every exception was met, so none of them is an empty promise.
    assert named >= MAY_WAIT


def owed(run: Run, now: Moment) -> Iterator[tuple[tuple[str, str], list[int]]]:
    """Yields the queues and types whose waiting jobs are each within what is guaranteed."""
    rows = run.rows
    for key, most in PROMISED.items():
        mine = [j for j in now.waiting if (rows[j].queue, rows[j].gpu_type) == key]
        held = held_of(run, now, key)
        if mine and held + max(rows[j].gpus for j in mine) <= most:
            yield key, mine


def held_of(run: Run, now: Moment, key: tuple[str, str]) -> int:
    """Returns the GPUs that a queue holds by jobs of a type."""
    rows = run.rows
    mine = (j for j in now.running if (rows[j].queue, rows[j].gpu_type) == key)
    return sum(now.running[job] for job in mine)


def check_queues(run: Run) -> None:
    """Fails if a queue waits too long for its guarantee, or loses it by a stop."""
    story = play(run.rows, run.policy, Cluster(GROUPS, queues=QUEUES), capacity=run.capacity)
    most_s = max(run.min_run_s, run.grace_s) + SOON_S + ROUNDED_S
    since: dict[tuple[str, str], float] = {}
    before: set[int] = set()
    for now in moments(story):
        for key, began_s in since.items():
            assert now.t - began_s <= most_s, ("waits", key, began_s, now.t, run)
        excused = {r.job for r in now.reasons if r.code in MAY_WAIT}
        begun = {(run.rows[j].queue, run.rows[j].gpu_type) for j in now.running.keys() - before}
        waits = [key for key, mine in owed(run, now) if not excused & set(mine)]
        since = {k: since[k] if k in since and k not in begun else now.t for k in waits}
        for job in before & now.waiting.keys() if not run.drained else ():
            key = run.rows[job].queue, run.rows[job].gpu_type
            lost = held_of(run, now, key) + run.rows[job].gpus <= PROMISED.get(key, 0)
            assert not lost, ("stopped", job, now.t, run)
        before = set(now.running)


@pytest.mark.parametrize("inner", CATALOGUE)
def test_no_inner_policy_keeps_or_takes_what_is_guaranteed(inner: str) -> None:
    check_queues(drawn_run(CATALOGUE.index(inner), [SOONER.get(inner, inner)]))


@pytest.mark.parametrize("inner", ["srtf", "afs-l", "muri-s:tick-s=0", "gandiva"])
def test_inner_policies_that_stop_jobs_leave_guarantees_alone(inner: str) -> None:
    for seed in REOPENED:
        check_queues(drawn_run(seed, [inner]))


@pytest.mark.slow
@pytest.mark.parametrize("inner", CATALOGUE)
def test_the_guarantees_hold_in_many_runs_of_each_inner_policy(inner: str) -> None:
    for seed in range(60):
        check_queues(drawn_run(seed, [SOONER.get(inner, inner)]))
