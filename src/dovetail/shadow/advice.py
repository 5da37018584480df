"""What a policy would do with the cluster as it is now, in values and in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.control.loop import check_needs
from dovetail.control.state import ClusterState
from dovetail.core.errors import DovetailError
from dovetail.core.legality import violations
from dovetail.core.messages import Reason
from dovetail.core.placing import Placing
from dovetail.core.plan import Change
from dovetail.core.policy import Policy, name_of, spell
from dovetail.core.trace import Trace
from dovetail.live.server.explain import BEHIND, SENTENCES
from dovetail.shadow.lengths import forecast_of
from dovetail.shadow.snapshot import Snapshot
from dovetail.shadow.tables import UNSEEN, Tables, state_of, tables_of
from dovetail.study.run import granted

START, PREEMPT, MOVE, RESIZE = "start", "preempt", "move", "resize"
FIRST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Action:
    """One thing the policy would do to a job; `before` and `after` are like `n1:2 + n3:4`."""

    verb: str
    job: str
    submit_s: float
    before: str
    after: str
    why: str

    def sentence(self) -> str:
        """Returns the action as a line of advice."""
        if self.verb == START:
            return f"start {self.job} on {self.after}: {self.why}"
        if self.verb == PREEMPT:
            return f"preempt {self.job} on {self.before}: {self.why}"
        return f"{self.verb} {self.job} {self.before} -> {self.after}: {self.why}"


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer of a policy to one snapshot.

    `order` ranks the waiting jobs as the policy does, `slurm_order` as Slurm's priorities do.
    `waits` has a reason code for waiting jobs that the policy explains. `held_back` counts the
    jobs that Slurm lets nobody start, by its reason.
    """

    policy: str
    cluster: str
    time_s: float
    nodes: int
    gpus: int
    free_gpus: int
    running: int
    waiting: int
    held_back: Mapping[str, int]
    actions: tuple[Action, ...]
    order: tuple[str, ...]
    slurm_order: tuple[str, ...]
    waits: Mapping[str, str]
    notes: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Returns the actions and the order as lines; at least one."""
        lines = [action.sentence() for action in self.actions]
        if self.order != self.slurm_order:
            lines.append(f"order {_listed(self.order)} instead of {_listed(self.slurm_order)}")
        return lines or ["do what Slurm does: nothing now, and the same order"]


def _listed(jobs: Sequence[str]) -> str:
    more = f" and {len(jobs) - FIRST_SHOWN} more" if len(jobs) > FIRST_SHOWN else ""
    return ", ".join(jobs[:FIRST_SHOWN]) + more


def advise(
    snapshot: Snapshot,
    policy: Policy,
    *,
    forecast: str,
    placing: Placing,
    history: Trace | None = None,
) -> Advice:
    """Returns what a policy would do now. Raises InputError, or DovetailError for a bad policy.

    `history` has the earlier jobs from which lengths are predicted, if the forecast is such.
    The policy is asked as if it had just started: it remembers nothing of earlier snapshots.
    """
    tables = tables_of(snapshot)
    told = forecast_of(forecast, tables, history)
    state = state_of(tables, policy, forecast=told, placing=placing)
    check_needs(policy, granted(state.forecast), frozenset(), supplier="limit")
    slurm_order = _slurm_order(tables, state)
    answer = _ask(policy, state)
    starts = {change.job for change in answer.changes if change.before is None}
    order = sorted(answer.ranked, key=lambda job: job not in starts)
    ranks = {job: rank for rank, job in enumerate(slurm_order, 1)}
    allowed = [change for change in answer.changes if _within_reach(tables, change)]
    barred = {change.job for change in answer.changes} - {change.job for change in allowed}
    names = tables.jobs.job_id
    return Advice(
        policy=spell(policy),
        cluster=snapshot.cluster,
        time_s=snapshot.time_s,
        nodes=tables.cluster.nodes,
        gpus=tables.cluster.installed_gpus,
        free_gpus=state.plan.occupancy.free_gpus,
        running=_running(tables),
        waiting=len(slurm_order),
        held_back=_held_back(snapshot),
        actions=tuple(_action(tables, change, order, ranks, allowed) for change in allowed),
        order=tuple(names[job] for job in order),
        slurm_order=tuple(names[job] for job in slurm_order),
        waits={names[job]: code for job, code in answer.waits.items() if job not in starts},
        notes=(*tables.notes, *_barred_note(tables, barred)),
    )


def _running(tables: Tables) -> int:
    return sum(bool(j.held) and not j.job_id.startswith(UNSEEN) for j in tables.listed)


def _held_back(snapshot: Snapshot) -> dict[str, int]:
    counts = Counter(job.held_back for job in snapshot.jobs if job.held_back)
    return dict(sorted(counts.items()))


def _slurm_order(tables: Tables, state: ClusterState) -> list[int]:
    """Returns the waiting jobs by Slurm's priority, then in order of submission."""
    priority = tables.jobs.priority
    return sorted(state.waiting, key=lambda job: (-float(priority[job]), job))


@dataclass(frozen=True, slots=True)
class _Answer:
    """The legal changes of a policy, why jobs wait, and its order of those that wait."""

    changes: Sequence[Change]
    waits: Mapping[int, str]
    ranked: Sequence[int]


def _ask(policy: Policy, state: ClusterState) -> _Answer:
    view = state.view
    decision = policy.decide(view, policy.initial)
    changes: Sequence[Change] = ()
    if decision.draft is not None:
        changes = list(decision.draft.changes())
        wrong = violations(view, changes, decision.draft.occupancy, policy.powers)
        if wrong:
            raise DovetailError(f"policy {name_of(policy)}: {'; '.join(wrong)}")
    view.plan.discard()
    if decision.order is not None:
        state.reorder(decision.order)
    return _Answer(changes, _codes(decision.because or (), state), list(state.waiting))


def _codes(because: Sequence[Reason], state: ClusterState) -> dict[int, str]:
    """Returns the reason code of each waiting job: its own, its shape's, or that of all others."""
    own = {reason.job: reason.code for reason in because if reason.job >= 0}
    shapes = {reason.shape: reason.code for reason in because if reason.job < 0}
    others = shapes.pop(-1, "")
    found = {
        job: own.get(job) or shapes.get(state.view.shape_of[job]) or others for job in state.waiting
    }
    return {job: code for job, code in found.items() if code}


def _action(
    tables: Tables,
    change: Change,
    order: Sequence[int],
    slurm_rank: Mapping[int, int],
    changes: Sequence[Change],
) -> Action:
    job, before, after = change
    listed = tables.listed[job]
    old = "" if before is None else tables.where(before.spans)
    new = "" if after is None else tables.where(after.spans)
    if before is None:
        rank, theirs = order.index(job) + 1, slurm_rank[job]
        same = " in its order and in Slurm's"
        verb = START
        why = (
            f"{_nth(rank)}{same}"
            if rank == theirs
            else (f"{_nth(rank)} in its order, {_nth(theirs)} in Slurm's")
        )
    elif after is None:
        verb, why = PREEMPT, _beneficiaries(tables, change, changes)
    elif before.gpus != after.gpus:
        verb, why = RESIZE, f"it can train on {listed.least_gpus} to {listed.most_gpus} GPUs"
    else:
        verb, why = MOVE, _beneficiaries(tables, change, changes)
    return Action(verb, listed.job_id, listed.submit_s, old, new, why)


def _beneficiaries(tables: Tables, change: Change, changes: Sequence[Change]) -> str:
    """Returns who gets GPUs on the nodes that a job leaves."""
    assert change.before is not None
    left = {node for node, _ in change.before.spans}
    names = [
        tables.jobs.job_id[other.job]
        for other in changes
        if other.job != change.job
        and other.after is not None
        and any(node in left for node, _ in other.after.spans)
    ]
    return f"its GPUs go to {_listed(names)}" if names else "its GPUs stay free"


def _nth(rank: int) -> str:
    ending = "th" if 10 <= rank % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{ending}"


def _within_reach(tables: Tables, change: Change) -> bool:
    """True if Slurm allows the job on all nodes that it would newly use."""
    job, before, after = change
    held = set() if before is None else {node for node, _ in before.spans}
    reach = tables.reach[job]
    return after is None or all(node in reach or node in held for node, _ in after.spans)


def _barred_note(tables: Tables, barred: set[int]) -> list[str]:
    names = [tables.jobs.job_id[job] for job in sorted(barred)]
    if not names:
        return []
    return [f"it would also start {_listed(names)} outside their partitions, which Slurm forbids"]


def sentence_of(code: str, *, is_next: bool) -> str:
    """Returns the sentence of a reason code for a job that is the next of its order, or not."""
    if code == "Resources" and not is_next:
        return BEHIND
    return SENTENCES.get(code, code)
