"""The health of nodes: when their agents were last heard, and which are down or drained.

A node is down after `Rules.node_patience_s` of silence, and not before: `is_overdue` decides that,
`node_loss.py` handles the loss. Its next inventory brings it back (`agent_reports.py`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass

from dovetail.core.cluster import DOWN, DRAINING, UP
from dovetail.core.units import NEVER_S
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.outbox import Outbox
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.workers.rules import Rules
from dovetail.wire.agent import Heartbeat, InventoryRequest, Renew

LOG = logging.getLogger(__name__)
DRAINED, LOST = "drained", "nodes down"
"""The names in the journal of the nodes that users drained, and of those that are down."""
IN_LOG = "nodes closed"
"""The name in the journal of the states that nodes have in the event log, unless they are up."""
LEASES = "leases"
"""The name in the journal of the times from which nodes that are down count as lost."""


@dataclass(slots=True)
class NodeHealth:
    """One node: when its agent was last heard, and whether its inventory is known.

    `back_s` is the end of its last silence that was long enough for orders to be lost. For
    `excused_s` of its silence this controller could not have heard it. An inventory counts if it
    answers request `inventory_min` or a later one.

    `beat` is the last heartbeat, which is answered if the node has a lease. A node that is down is
    lost at `lost_s`: from then on none of its workers lives any more. At `doubted_s` it was gone,
    as was said when it was not down.
    """

    heard_s: float
    back_s: float
    gpus: tuple[str, ...]
    is_surveyed: bool = False
    is_down: bool = False
    is_drained: bool = False
    excused_s: float = 0.0
    inventory_min: int = 0
    beat: Heartbeat | None = None
    lost_s: float = NEVER_S
    doubted_s: float = NEVER_S


class NodeMonitor:
    """Owns the health of each node, and the states of nodes in tables and log."""

    def __init__(
        self,
        tables: RecordedTables,
        log: InstantLog,
        outbox: Outbox,
        timers: Timers,
        rules: Rules,
        epoch: int,
    ) -> None:
        self._tables = tables
        self._log = log
        self._outbox = outbox
        self._timers = timers
        self._rules = rules
        self._epoch = epoch
        self._all_drained = False
        self._closed: Set[int] = frozenset()
        self._requests = 0
        self.has_leases = any(rules.leases_s)
        self._in_log: dict[int, str] = {}
        self.nodes = [
            NodeHealth(tables.now, tables.now, tuple(str(gpu) for gpu in range(count)))
            for count in tables.state.view.cluster.installed
        ]

    def begin(self, meta: dict[str, str], stored_s: float) -> None:
        """Restores the recorded states, and requests the inventories of all nodes.

        `stored_s` is the newest time on record.
        """
        for number in self._known(_stored_json(meta, DRAINED)):
            self.nodes[number].is_drained = True
        for number in self._known(_stored_json(meta, LOST)):
            self.nodes[number].is_down = True
        self._restore_leases(_stored_json(meta, LEASES), stored_s)
        states = _stored_json(meta, IN_LOG)
        if isinstance(states, dict):
            self._in_log = {
                int(n): str(state) for n, state in states.items() if n.isascii() and n.isdecimal()
            }
        nodes = range(len(self.nodes))
        closed = [(n, state) for n in nodes if (state := self._state(n)) != UP]
        if closed:
            # Not through the recorded tables: the log has these states already.
            self._tables.state.change_nodes(closed)
        for number in nodes:
            self.request_inventory(number)
            self.watch(number)

    def _restore_leases(self, lost: object, stored_s: float) -> None:
        """Goes on with the leases of nodes that are down.

        Only time with a controller counts: how long there was none, nobody can prove. So what was
        left of a lease on record is left of it now.
        """
        left_s = lost if isinstance(lost, dict) else {}
        for number, health in enumerate(self.nodes):
            if not health.is_down or not self.has_lease(number):
                continue
            full_s = self._rules.lost_after_s(number)
            lost_s = left_s.get(str(number))
            part_s = lost_s - stored_s if isinstance(lost_s, int | float) else full_s
            health.lost_s = self._tables.now + max(0.0, min(full_s, part_s))
            self._timers.set(Timer.LEASE, number, health.lost_s)

    def _known(self, numbers: object) -> list[int]:
        """Returns those values of a list that are numbers of nodes."""
        known = range(len(self.nodes))
        listed = numbers if isinstance(numbers, list) else []
        return [n for n in listed if type(n) is int and n in known]

    def state_of(self, node: int) -> str:
        """Returns the state of a node in the tables."""
        return self._tables.state.view.cluster.state_of.get(node, UP)

    @property
    def all_surveyed(self) -> bool:
        """Returns whether every node has reported its inventory, or is down."""
        return all(n.is_surveyed or n.is_down for n in self.nodes)

    # Messages.

    def heard(self, node: int) -> bool:
        """Notes a sign of life; False for a node that does not exist."""
        if not 0 <= node < len(self.nodes):
            return False
        health, now = self.nodes[node], self._tables.now
        if health.is_down and health.heard_s < now:
            # Once in an instant, however many of its messages came together.
            self.request_inventory(node)
        if self._is_away(health):
            # Orders may have been lost in the silence, so gangs count their timeouts from here.
            health.back_s = now
        health.heard_s, health.excused_s = now, 0.0
        return True

    def excuse(self, late_s: float) -> None:
        """Excuses silence while this controller could not run, so that it woke `late_s` too late.

        A stalled disk or machine keeps agents from reporting as well. They get that time now.
        """
        if late_s <= self._rules.resend_s:
            return
        for number, health in enumerate(self.nodes):
            # The maximum, not the sum: between two stalls an agent had time to report.
            health.excused_s = max(health.excused_s, late_s)
            self.watch(number)

    def drain(self, node: int, *, undo: bool) -> None:
        """Drains a node or takes that back; jobs that run there go on."""
        if 0 <= node < len(self.nodes) and self.nodes[node].is_drained == undo:
            self.nodes[node].is_drained = not undo
            self.update_states([node])
            # Also of a node that is down, whose state does not change.
            self._keep_drained()

    def close(self, nodes: Set[int]) -> None:
        """Drains exactly these nodes beside those that users drained: single GPUs of them drain."""
        before, self._closed = self._closed, nodes
        self.update_states(sorted(before ^ nodes))

    def drain_all(self) -> None:
        """Drains all nodes until the controller has stopped; only this controller remembers it."""
        self._all_drained = True
        self.update_states(range(len(self.nodes)))

    # Silence.

    def is_overdue(self, node: int) -> bool:
        """Returns whether a node that counts as alive has been silent for too long."""
        health = self.nodes[node]
        return not health.is_down and self._tables.now >= self._dead_s(health)

    def is_heard_since(self, node: int, asked_s: float) -> bool:
        """Returns whether a sign of life of a node came since a time."""
        return self.nodes[node].heard_s >= asked_s

    def doubt(self, node: int, asked_s: float) -> None:
        """Notes that a node which is not down was said to be gone at a time."""
        self.nodes[node].doubted_s = asked_s
        self.watch(node)

    def is_doubted(self, node: int) -> bool:
        """Returns whether a node was said to be gone and was not heard since then, for a while."""
        health = self.nodes[node]
        return not health.is_down and self._tables.now >= self._believed_s(node)

    def _believed_s(self, node: int) -> float:
        """Returns when a node is believed to be gone, NEVER_S if it was heard since it was said."""
        doubted_s = self.nodes[node].doubted_s
        return NEVER_S if self.is_heard_since(node, doubted_s) else doubted_s + self._rules.resend_s

    def watch(self, node: int) -> None:
        """Sets the alarm for when a node counts as down if it stays silent."""
        health = self.nodes[node]
        due = NEVER_S if health.is_down else min(self._dead_s(health), self._believed_s(node))
        self._timers.set(Timer.NODE_SILENT, node, due)

    def _dead_s(self, health: NodeHealth) -> float:
        return health.heard_s + health.excused_s + self._rules.node_patience_s

    def reached_s(self, node: int) -> float:
        """Returns since when the agent of a node can be reached: now, if it is silent."""
        health = self.nodes[node]
        return self._tables.now if self._is_away(health) else health.back_s

    def _is_away(self, health: NodeHealth) -> bool:
        return self._tables.now > health.heard_s + self._rules.resend_s

    # Inventories.

    def request_inventory(self, node: int) -> None:
        """Requests the inventory of a node, and sets the alarm for the next request."""
        self._requests += 1
        # Only nodes with a lease need it: of others a job waits for the inventory in any case.
        void_before = self.nodes[node].inventory_min if self.has_lease(node) else 0
        self._outbox.serial = self._requests
        request = InventoryRequest(self._epoch, self._requests, void_before)
        self._outbox.add((node, request))
        self._renew(node)
        again_s = self._tables.now + self._rules.inventory_every_s
        self._timers.set(Timer.INVENTORY, node, again_s)

    def void_orders(self, node: int) -> None:
        """Makes the next inventory void all starts ordered until now: they may arrive after it."""
        health = self.nodes[node]
        health.is_surveyed, health.inventory_min = False, self._requests + 1

    def is_current(self, node: int, epoch: int, serial: int) -> bool:
        """Returns whether an inventory answers this controller, and no request from before a loss.

        After its answer to an older request an agent may still carry out orders of that time, so
        the inventory would not show the workers that they start.
        """
        return epoch >= self._epoch and serial >= self.nodes[node].inventory_min

    # Leases.

    def take_beat(self, node: int, beat: Heartbeat) -> None:
        """Notes the newest heartbeat of a node; late ones change nothing."""
        last = self.nodes[node].beat
        is_late = (
            last is not None and beat.incarnation == last.incarnation and beat.sent_s <= last.sent_s
        )
        if not beat.incarnation or is_late:
            return
        self.nodes[node].beat = beat
        if last is None:
            self._renew(node)
        elif beat.incarnation != last.incarnation and self.has_lease(node):
            self._survey_anew(node)

    def _survey_anew(self, node: int) -> None:
        """Gives a new agent no lease before it has voided what the agent before it was ordered.

        If its machine was started anew it knows of no worker that ended there, and would obey a
        late order to start one.
        """
        self.void_orders(node)
        self.request_inventory(node)

    def _renew(self, node: int) -> None:
        """Renews the lease of a node by answering its last heartbeat, unless the node is down.

        A node that is down gets no more time: when it is lost was counted from its last sign.
        """
        health, lease_s = self.nodes[node], self._rules.lease_s(node)
        if not lease_s or health.beat is None or not health.is_surveyed:
            return
        grace_s, beat = self._rules.lease_grace_s, health.beat
        self._outbox.add((node, Renew(lease_s, grace_s, beat.incarnation, beat.sent_s)))

    def has_lease(self, node: int) -> bool:
        """Returns whether workers of a node end by themselves if its agent hears no controller."""
        return self._rules.lease_s(node) > 0

    def may_live(self, node: int) -> bool:
        """Returns whether workers on a node may live that this controller cannot see."""
        health = self.nodes[node]
        unseen = self.has_lease(node) and not health.is_surveyed
        return unseen and self._tables.now < health.lost_s

    def awaited(self, nodes: Iterable[int]) -> list[int]:
        """Returns those of some nodes that are down and may still have workers that live."""
        return [n for n in nodes if self.nodes[n].is_down and self.may_live(n)]

    def is_proven(self, node: int) -> bool:
        """Returns whether the inventory of a node shows all of its workers."""
        return self.nodes[node].is_surveyed or not self.has_lease(node)

    def mark_gone(self, node: int) -> None:
        """Notes that whoever started the node says it is gone, with all that ran there."""
        # Its starter repeats it: lost once is lost.
        self.nodes[node].lost_s = min(self.nodes[node].lost_s, self._tables.now)
        self._keep_leases()

    def _keep_leases(self) -> None:
        lost = {n: h.lost_s for n, h in enumerate(self.nodes) if h.is_down and h.lost_s < NEVER_S}
        if self.has_leases:
            self._log.keep(LEASES, json.dumps(lost))

    # States.

    def mark_down(self, node: int) -> None:
        """Notes that a node is down; only an inventory requested from now on brings it back."""
        health = self.nodes[node]
        health.is_down = True
        self.void_orders(node)
        if self.has_lease(node):
            health.beat = None
            health.lost_s = health.heard_s + self._rules.lost_after_s(node)
            self._timers.set(Timer.LEASE, node, health.lost_s)
            self._keep_leases()

    def mark_up(self, node: int) -> bool:
        """Notes that the inventory of a node is known, and returns whether that is new.

        The node is not down any more.
        """
        health = self.nodes[node]
        was_surveyed, health.is_surveyed = health.is_surveyed, True
        if health.is_down:
            health.is_down, health.lost_s, health.doubted_s = False, NEVER_S, NEVER_S
            self._timers.drop(Timer.LEASE, node)
            self.watch(node)
            self._keep_leases()
            self.update_states([node])
        if not was_surveyed:
            self._renew(node)
        return not was_surveyed

    def update_states(self, nodes: Iterable[int]) -> None:
        """Puts new states of nodes into tables, log and journal."""
        changed = [(n, s) for n in nodes if (s := self._state(n)) != self.state_of(n)]
        if not changed:
            return
        self._tables.change_nodes(changed)
        self.record_states([n for n, _ in changed])
        self._keep_drained()
        down = [n for n, health in enumerate(self.nodes) if health.is_down]
        self._log.keep(LOST, json.dumps(down))

    def _keep_drained(self) -> None:
        drained = [n for n, health in enumerate(self.nodes) if health.is_drained]
        self._log.keep(DRAINED, json.dumps(drained))

    def record_states(self, nodes: Sequence[int]) -> None:
        """Records the states of nodes where the log has others."""
        changed = [(n, s) for n in nodes if (s := self.state_of(n)) != self._in_log.get(n, UP)]
        if not changed:
            return
        self._tables.record_nodes(changed)
        self._in_log.update(changed)
        closed = {str(n): state for n, state in self._in_log.items() if state != UP}
        self._log.keep(IN_LOG, json.dumps(closed))

    def _state(self, node: int) -> str:
        health = self.nodes[node]
        if health.is_down:
            # Jobs that keep their place on it are still in the plan, and nothing else may start.
            return DRAINING if self._tables.holds_jobs(node) else DOWN
        is_drained = health.is_drained or self._all_drained or node in self._closed
        return DRAINING if is_drained else UP


def awaits_nodes(meta: Callable[[str], str | None]) -> bool:
    """Returns whether by the names in a journal some nodes are down and not lost yet."""
    return (meta(LEASES) or "{}") != "{}"


def _stored_json(meta: dict[str, str], name: str) -> object:
    """Returns the stored value of a name; None if there is none or it is damaged."""
    text = meta.get(name)
    if text is None:
        return None
    value: object = None
    with suppress(ValueError):
        value = json.loads(text)
    if isinstance(value, dict if name in (IN_LOG, LEASES) else list):
        return value
    LOG.error("'%s' is damaged in the store and left out: %.80r", name, text)
    return None
