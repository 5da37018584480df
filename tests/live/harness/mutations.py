"""Mistakes in the rules about lost nodes, each of which the seeded stories must find.

Each is the rule as one might write it at first, put in place of the one that holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dovetail.core.units import NEVER_S
from dovetail.live.controller.agent_reports import AgentReports
from dovetail.live.controller.leases import Leases
from dovetail.live.controller.live_jobs import LiveJob
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.timers import Timer
from dovetail.live.node.agent_worker import AgentWorker
from dovetail.live.node.fence import Fence
from dovetail.live.node.lease import Lease
from dovetail.live.workers import inventory_check
from dovetail.live.workers.elastic_gang import ElasticGang
from dovetail.live.workers.gang import Gang
from dovetail.live.workers.rules import Rules
from dovetail.live.workers.worker_state import Worker
from dovetail.wire.agent import Renew, WorkerEnded

Mutation = Callable[[pytest.MonkeyPatch], None]


def lost_is_dead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeMonitor, "may_live", lambda self, node: False)


def counts_from_arrival(patch: pytest.MonkeyPatch) -> None:
    def renew(lease: Lease, order: Renew, incarnation: str, now: float) -> bool:
        lease.until_s, lease.length_s = now + order.lease_s, order.lease_s
        lease.grace_s, lease._renewed_for = order.grace_s, incarnation
        lease.store()
        return True

    patch.setattr(Lease, "renew", renew)


def no_margin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rules, "lost_after_s", Rules.lease_s)


def nothing_is_void(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fence, "is_void", lambda self, serial: False)


def any_inventory_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeMonitor, "is_current", lambda self, node, epoch, serial: True)


def no_lineage(patch: pytest.MonkeyPatch) -> None:
    begin = Leases.begin

    def in_the_same(self: Leases, job: LiveJob) -> None:
        before = job.record.lineage
        begin(self, job)
        if job.record.lineage != before:
            self.jobs.write(job, replace(job.record, lineage=before))

    patch.setattr(Leases, "begin", in_the_same)


def trains_on_without_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ElasticGang, "can_do_without", lambda self, node: True)


def absence_proves_an_end(patch: pytest.MonkeyPatch) -> None:
    miss = inventory_check._miss

    def gone(gang: Gang, worker: Worker, now: float) -> None:
        if worker.end_s <= now and worker.missing_s < NEVER_S and now >= worker.missing_s + 4.0:
            end = WorkerEnded(gang.roster.job, worker.worker, -1, -9, worker.why)
            gang.ended(worker.node, end, now)
        else:
            miss(gang, worker, now)

    patch.setattr(inventory_check, "_miss", gone)


def who_left_is_done(patch: pytest.MonkeyPatch) -> None:
    def why(worker: AgentWorker) -> str:
        return "" if worker.end is None else worker.end.why or worker.why

    patch.setattr(AgentWorker, "why_ended", property(why))


def a_number_starts_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fence, "is_used_up", lambda self, job, worker: False)


def a_node_is_missed_once(patch: pytest.MonkeyPatch) -> None:
    mark_up = NodeMonitor.mark_up

    def unwatched(monitor: NodeMonitor, node: int) -> bool:
        was_down = monitor.nodes[node].is_down
        is_new = mark_up(monitor, node)
        if was_down:
            monitor._timers.drop(Timer.NODE_SILENT, node)
        return is_new

    patch.setattr(NodeMonitor, "mark_up", unwatched)


def a_new_agent_is_as_the_one_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeMonitor, "_survey_anew", NodeMonitor._renew)


def orders_to_a_lost_node_count(patch: pytest.MonkeyPatch) -> None:
    void = NodeMonitor.void_orders

    def only_once(monitor: NodeMonitor, node: int) -> None:
        if not monitor.nodes[node].is_down or monitor.nodes[node].is_surveyed:
            void(monitor, node)

    patch.setattr(NodeMonitor, "void_orders", only_once)


def a_report_counts_before_the_inventory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AgentReports, "_is_of_unfound", lambda self, report: False)


MUTATIONS: dict[str, Mutation] = {
    "lost is dead": lost_is_dead,
    "an answer counts from its arrival": counts_from_arrival,
    "no margin": no_margin,
    "nothing is void": nothing_is_void,
    "any inventory counts": any_inventory_counts,
    "no lineage": no_lineage,
    "a job trains on without anybody": trains_on_without_anybody,
    "absence proves an end": absence_proves_an_end,
    "a number starts again": a_number_starts_again,
    "a node is missed once": a_node_is_missed_once,
    "a new agent is as the one before": a_new_agent_is_as_the_one_before,
    "orders to a lost node count": orders_to_a_lost_node_count,
    "a report counts before the inventory": a_report_counts_before_the_inventory,
}
