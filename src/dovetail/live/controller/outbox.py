"""Sends the orders of an instant, once the journal entry that explains them is durable."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.core.units import NEVER_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.edges.protocols import Post
from dovetail.live.workers.gang_orders import due_orders, next_resend_s
from dovetail.live.workers.rules import Rules
from dovetail.wire.agent import (
    AgentOrder,
    EndWorker,
    Forget,
    InventoryRequest,
    NotifyWorkers,
    StartWorker,
)

STRAY_GRACE_S = 0.0
"""A worker that no job has is killed at once: its job is over on record."""


@dataclass(slots=True)
class Outbox:
    """Owns which gangs may have orders to send, and sends their orders and all others."""

    jobs: LiveJobs
    gangs: LiveGangs
    gpus: GpuMap
    log: InstantLog
    timers: Timers
    post: Post
    rules: Rules
    epoch: int
    _marked: dict[int, LiveJob] = field(default_factory=dict, init=False)

    def mark(self, job: LiveJob) -> None:
        """Marks a job whose gang may have new orders."""
        self._marked[job.number] = job

    def send(self, now: float) -> None:
        """Sends all orders that are due; call it when the entry of this instant is durable."""
        orders = self.log.take_orders()
        for number, job in self._marked.items():
            if job.gang is None:
                continue
            orders.extend(due_orders(job.gang, now, settled=self.gangs.settled))
            # A job that began anew has another gang, and the timer is that one's.
            is_live = self.jobs.get(number) is job
            due_s = min(job.gang.next_s(now), next_resend_s(job.gang, now)) if is_live else NEVER_S
            self.timers.set(Timer.GANG, number, due_s)
        self._marked = {}
        for key, stray in self.gpus.usage.unknown.items():
            # Repeated until its agent reports the end: an order may be lost.
            if now >= stray.end_sent_s + self.rules.resend_s:
                stray.end_sent_s = now
                orders.append((stray.node, EndWorker(*key, STRAY_GRACE_S)))
        for node, payload in orders:
            self.post.send(node, _as_order(self.epoch, payload))


def _as_order(
    epoch: int, payload: StartWorker | EndWorker | NotifyWorkers | Forget | InventoryRequest
) -> AgentOrder:
    """Returns an order of the controller of an epoch."""
    match payload:
        case StartWorker():
            return AgentOrder(epoch, start=payload)
        case EndWorker():
            return AgentOrder(epoch, end=payload)
        case NotifyWorkers():
            return AgentOrder(epoch, tell=payload)
        case Forget():
            return AgentOrder(epoch, forget=payload)
        case InventoryRequest():
            return AgentOrder(epoch, hail=payload)
