"""Sends the orders of an instant, once the journal entry that explains them is durable."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.core.units import NEVER_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.edges.protocols import Post
from dovetail.live.workers.gang_events import NodeOrder, Order
from dovetail.live.workers.gang_orders import due_orders, next_resend_s
from dovetail.live.workers.rules import Rules
from dovetail.wire.agent import (
    AgentOrder,
    EndWorker,
    FindPort,
    Forget,
    InventoryRequest,
    NotifyWorkers,
    Renew,
    StartWorker,
    WarnWorker,
)

UNKNOWN_GRACE_S = 0.0
"""A worker that no job has is killed at once: its job is over on record."""


@dataclass(slots=True)
class Outbox:
    """Owns the orders of the present instant, and the gangs that may have more.

    `serial` is that of the last request for an inventory.

    They are sent when the journal entry of the instant is durable. If one were sent earlier and the
    controller killed, the next controller would not know of it.
    """

    jobs: LiveJobs
    gangs: LiveGangs
    gpus: GpuMap
    timers: Timers
    post: Post
    rules: Rules
    epoch: int
    serial: int = 0
    _orders: list[NodeOrder] = field(default_factory=list, init=False)
    _marked: dict[int, LiveJob] = field(default_factory=dict, init=False)

    def add(self, *orders: NodeOrder) -> None:
        """Adds orders for agents."""
        self._orders.extend(orders)

    def mark(self, job: LiveJob) -> None:
        """Marks a job whose gang may have new orders."""
        self._marked[job.number] = job

    def send(self, now: float) -> None:
        """Sends all orders that are due; call it when the entry of this instant is durable."""
        orders, self._orders = self._orders, []
        for number, job in self._marked.items():
            if job.gang is None:
                continue
            orders.extend(due_orders(job.gang, now, settled=self.gangs.settled))
            # A job that began anew has another gang, and the timer is that one's.
            is_live = self.jobs.get(number) is job
            due_s = min(job.gang.next_s(now), next_resend_s(job.gang, now)) if is_live else NEVER_S
            self.timers.set(Timer.GANG, number, due_s)
        self._marked = {}
        for key, worker in self.gpus.usage.unknown.items():
            # Repeated until its agent reports the end: an order may be lost.
            if now >= worker.end_sent_s + self.rules.resend_s:
                worker.end_sent_s = now
                orders.append((worker.node, EndWorker(*key, UNKNOWN_GRACE_S)))
        for node, payload in orders:
            serial = self.serial if self.rules.lease_s(node) else 0
            self.post.send(node, _as_order(self.epoch, payload, serial))


def _as_order(epoch: int, payload: Order, serial: int) -> AgentOrder:
    """Returns an order of the controller of an epoch; `serial` matters to starts alone."""
    match payload:
        case StartWorker():
            return AgentOrder(epoch, start=payload, serial=serial)
        case EndWorker():
            return AgentOrder(epoch, end=payload)
        case NotifyWorkers():
            return AgentOrder(epoch, tell=payload)
        case Forget():
            return AgentOrder(epoch, forget=payload)
        case InventoryRequest():
            return AgentOrder(epoch, hail=payload)
        case Renew():
            return AgentOrder(epoch, renew=payload)
        case FindPort():
            return AgentOrder(epoch, port=payload)
        case WarnWorker():
            return AgentOrder(epoch, warn=payload)
