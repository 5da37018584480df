"""The status that readers see: one frozen snapshot, replaced a few times a second.

The loop publishes a new one by replacing a reference, so readers in other threads never wait for
the loop. Jobs and nodes go by their numbers, as users know them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dovetail.core.messages import Reason
from dovetail.core.node_sets import is_of_type
from dovetail.core.placement import Placement
from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.live.jobs.drain_reason import DrainReason
from dovetail.live.jobs.record import GangMember

LIMITED, RESERVED = "AccountingPolicy", "Reservation"
"""Why a job waits while GPUs are free: its tenant is at a limit; nodes are kept for others."""
DISCONNECTED = "NodeDisconnected"
"""Why a job is not in the queue that may still run on a node that is down (after Nomad)."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node: its state, when its agent was last heard, and its GPUs by name.

    Jobs of the queues in `closed_to` may not use it: these own other nodes. Of a node that is down,
    no worker lives any more from `lost_s` on. `drains` say why it or GPUs of it are drained.
    """

    node: int
    state: str
    gpus: tuple[str, ...]
    heard_s: float = LONG_AGO_S
    gpu_type: str = ""
    closed_to: tuple[str, ...] = ()
    lost_s: float = NEVER_S
    drains: tuple[DrainReason, ...] = ()
    warnings: tuple[str, ...] = ()
    name: str = ""

    @property
    def label(self) -> str:
        """Returns the name of the node, or its number if it has none."""
        return self.name or str(self.node)

    @property
    def drained_gpus(self) -> tuple[int, ...]:
        """The GPUs that are drained by themselves."""
        return tuple(dict.fromkeys(note.gpu for note in self.drains if note.gpu >= 0))

    def suits(self, queue: str, gpu_type: str) -> bool:
        """Returns whether jobs of a queue that request a type of GPU may use the node."""
        return is_of_type(self.gpu_type, gpu_type) and queue not in self.closed_to


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One placed job. `done_s` (solo seconds) was reached at `since_s`, and grows at `rate`.

    `left_s` is the forecast at `since_s`, infinite if nothing is known. `called` is its name in
    lists, if that is not its number. It `awaits` jobs that must leave its GPUs, or use less of
    their memory, before all its workers can start. `deferred` has the reason of each node whose
    agent cannot start a worker yet. It has not used its GPUs since `idle_s`, infinite if it does.
    """

    job: int
    placement: Placement
    members: tuple[GangMember, ...]
    done_s: float
    rate: float
    since_s: float
    left_s: float = float("inf")
    called: str = ""
    awaits: tuple[int, ...] = ()
    deferred: tuple[str, ...] = ()
    idle_s: float = NEVER_S


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """The cluster after a decision. `waiting` is in the policy's order, with shapes beside it.

    `reasons` are those of the last `Explained`, its jobs by number; `refused` is why the
    last plan that broke a rule was not applied. `unwritable` is why the controller can write
    nothing, and so starts nothing; empty while it can. `limited` are the shapes whose jobs a limit
    of their tenant or a reservation keeps off free GPUs, each with a reason code and a text.
    """

    now_s: float
    policy: str
    decided_s: float
    nodes: tuple[NodeStatus, ...]
    running: tuple[JobStatus, ...] = ()
    waiting: tuple[int, ...] = ()
    shapes: tuple[int, ...] = ()
    reasons: tuple[Reason, ...] = ()
    refused: str = ""
    refused_s: float = LONG_AGO_S
    unwritable: str = ""
    limited: tuple[tuple[int, str, str], ...] = ()

    def node_label(self, node: int) -> str:
        """Returns the name of a node, or its number if it has none or is unknown."""
        return self.nodes[node].label if 0 <= node < len(self.nodes) else str(node)

    def reason_codes(self) -> dict[int, Reason]:
        """Returns the reason of every waiting job that has one: of itself, its shape, or all."""
        by_job = {r.job: r for r in self.reasons if r.job >= 0}
        by_shape = {r.shape: r for r in self.reasons if r.job < 0 <= r.shape}
        general = next((r for r in self.reasons if r.job < 0 and r.shape < 0), None)
        shapes = self.shapes or (-1,) * len(self.waiting)
        reasons: dict[int, Reason] = {}
        for job, shape in zip(self.waiting, shapes, strict=True):
            reason = by_job.get(job) or by_shape.get(shape) or general
            if reason is not None:
                reasons[job] = reason
        return reasons

    def free_gpus(self) -> dict[int, int]:
        """Returns how many GPUs of each node that is up are free."""
        drained = {(n.node, gpu) for n in self.nodes for gpu in n.drained_gpus}
        taken = Counter(node for node, _ in self.seats().keys() | drained)
        return {n.node: len(n.gpus) - taken[n.node] for n in self.nodes if n.state == "up"}

    def seats(self) -> dict[tuple[int, int], list[int]]:
        """Returns the jobs on each GPU that is taken, (node, GPU) -> jobs."""
        jobs: dict[tuple[int, int], list[int]] = {}
        for run in self.running:
            for member in run.members:
                jobs.setdefault((member.node, member.gpu), []).append(run.job)
        return jobs


class SnapshotIndex:
    """Look-up tables of one snapshot, built once for all readers."""

    __slots__ = ("limits", "rank", "reasons", "runs", "snapshot")

    def __init__(self, snapshot: StatusSnapshot) -> None:
        self.snapshot = snapshot
        self.reasons = snapshot.reason_codes()
        self.runs = {run.job: run for run in snapshot.running}
        by_shape = {shape: (code, text) for shape, code, text in snapshot.limited}
        shaped = zip(snapshot.waiting, snapshot.shapes or (), strict=False)
        self.limits = {job: by_shape[shape] for job, shape in shaped if shape in by_shape}
        self.rank = {job: i for i, job in enumerate(snapshot.waiting)}
