"""Which nodes can be used: silence makes one down, its inventory brings it back, users drain it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dovetail.core.cluster import DOWN, DRAINING, UP
from dovetail.core.messages import NODE_DOWN, READY, ControllerChanged, NodeChanged, Shrunk
from dovetail.live.controller.live_jobs import Life
from dovetail.live.controller.plan_applier import Placements
from dovetail.live.controller.site import Site
from dovetail.live.controller.terminations import Endings
from dovetail.live.workers.gang import Gang
from dovetail.live.workers.inventory_check import check_inventory
from dovetail.live.workers.roster import END
from dovetail.wire.agent import Inventory, InventoryRequest, WorkerState

LOG = logging.getLogger(__name__)
DRAINED, LOST = "drained", "nodes down"
"""The names under which the journal keeps the nodes that users drained, and those that are down."""
SAID = "nodes closed"
"""The name under which it keeps the states that the log gives to nodes that are not up."""


@dataclass(slots=True)
class Node:
    """One node: when its agent was last heard, and whether its inventory is known.

    `back_s` is when it was heard again after so long a silence that orders may have been lost.
    Of its silence `excused_s` is time in which this controller could not have heard it. An
    inventory counts that answers a hail from `hail_min` on.
    """

    heard_s: float
    back_s: float
    gpus: tuple[str, ...]
    surveyed: bool = False
    down: bool = False
    drained: bool = False
    excused_s: float = 0.0
    hail_min: int = 0


K = TypeVar("K", list[Any], dict[str, Any])


def _kept(meta: dict[str, str], name: str, kind: type[K]) -> K:
    """Returns what is kept under a name, empty if that is nothing or damaged."""
    if name not in meta:
        return kind()
    try:
        kept = json.loads(meta[name])
    except ValueError:
        kept = None
    if isinstance(kept, kind):
        return kept
    LOG.error("'%s' is damaged in the store and left out: %.80r", name, meta[name])
    return kind()


class Health:
    """The nodes of a live cluster."""

    def __init__(self, site: Site, endings: Endings, placements: Placements) -> None:
        self._site = site
        self._endings = endings
        self._placements = placements
        self._all_drained = False
        self._hails = 0
        self._said: dict[int, str] = {}
        self.nodes = [
            Node(site.now, site.now, tuple(str(gpu) for gpu in range(count)))
            for count in site.state.view.cluster.installed
        ]

    def begin(self, meta: dict[str, str]) -> None:
        """Takes up the states that are on record, and hails all nodes."""
        for name, field in ((DRAINED, "drained"), (LOST, "down")):
            for number in _kept(meta, name, list):
                if type(number) is int and 0 <= number < len(self.nodes):
                    setattr(self.nodes[number], field, True)
        said = _kept(meta, SAID, dict).items()
        self._said = {int(n): str(state) for n, state in said if n.isascii() and n.isdecimal()}
        changed = [(n, self._state(n)) for n in range(len(self.nodes))]
        changed = [(n, state) for n, state in changed if state != UP]
        if changed:
            self._site.state.change_nodes(changed)
        for number in range(len(self.nodes)):
            self._hail(number)
            self._watch(number)
        self._check_settled()

    def state_of(self, node: int) -> str:
        """Returns the state of a node as the plan knows it."""
        return self._site.state.view.cluster.state_of.get(node, UP)

    def may_start(self, job: int, node: int, gpu: int) -> bool:
        """Tells whether a worker of a job can be started on a GPU now."""
        # No gang decides anything before each node is surveyed, or down until it is.
        site = self._site
        return not self.nodes[node].down and site.floor.is_free(job, node, gpu, site.seats)

    # What comes in.

    def heard(self, node: int) -> bool:
        """Takes note of a sign of life; False for a node that does not exist."""
        if not 0 <= node < len(self.nodes):
            return False
        info = self.nodes[node]
        if info.down and info.heard_s < self._site.now:
            self._hail(node)
        if self._is_away(info):
            info.back_s = self._site.now
        info.heard_s, info.excused_s = self._site.now, 0.0
        return True

    def was_away(self, late_s: float) -> None:
        """Excuses silence while this controller was kept from running, by so long too late.

        A disk or a machine that stands still keeps agents from speaking too, and they are given
        the time to do so now.
        """
        if late_s <= self._site.rules.resend_s:
            return
        for number, info in enumerate(self.nodes):
            # Not added up: between two such times there was one to speak.
            info.excused_s = max(info.excused_s, late_s)
            self._watch(number)

    def reached_s(self, node: int) -> float:
        """Returns since when the agent of a node can be spoken to: now, if it seems to be away."""
        info = self.nodes[node]
        return self._site.now if self._is_away(info) else info.back_s

    def _is_away(self, info: Node) -> bool:
        """Tells whether a node is silent for longer than it should be."""
        return self._site.now > info.heard_s + self._site.rules.resend_s

    def survey(self, said: Inventory) -> None:
        """Compares what an agent has with what is wanted of it."""
        site, node = self._site, said.node
        info = self.nodes[node]
        if said.epoch < site.epoch or said.serial < info.hail_min:
            return
        if said.gpus:
            info.gpus = said.gpus
        rows: dict[int, list[WorkerState]] = {}
        for row in said.workers:
            rows.setdefault(row.job, []).append(row)
        for job, those in rows.items():
            life = site.lives.get(job)
            if life is None:
                for row in those:
                    self._stray(node, row)
            else:
                self._survey_job(life, node, those)
        for job in site.floor.jobs_on(node, len(info.gpus)):
            known = site.lives.get(job)
            if known is not None and job not in rows:
                self._survey_job(known, node, ())
        listed = {(row.job, row.worker) for row in said.workers}
        for key in [k for k, s in site.floor.unknown.items() if s.node == node and k not in listed]:
            site.floor.drop_unknown(key)
        info.surveyed = True
        if info.down:
            info.down = False
            self._change([node])
        self._check_settled()

    def _survey_job(self, life: Life, node: int, rows: Sequence[WorkerState]) -> None:
        check_inventory(self._site.gang(life), node, rows, self._site.now)
        self._site.touch(life)

    def _stray(self, node: int, row: WorkerState) -> None:
        if row.exit_code is None:
            self._site.floor.add_unknown((row.job, row.worker), node, row.all_gpus)
        else:
            self._endings.forget(node, row.job, row.worker)

    def drain(self, node: int, *, undo: bool) -> None:
        """Gives a node no new work, or work again; what runs there goes on."""
        if 0 <= node < len(self.nodes) and self.nodes[node].drained == undo:
            self.nodes[node].drained = not undo
            self._change([node])

    def drain_all(self) -> None:
        """Gives no node new work until the controller has stopped."""
        self._all_drained = True
        self._change(range(len(self.nodes)))

    # What time brings.

    def look(self, node: int) -> None:
        """Declares a node down that was silent for too long."""
        info = self.nodes[node]
        if not info.down and self._site.now >= self._lost_s(info):
            self._lose(node)
        self._watch(node)

    def hail(self, node: int) -> None:
        """Asks a node for its inventory, and again later."""
        self._hail(node)

    def _hail(self, node: int) -> None:
        site = self._site
        self._hails += 1
        site.letters.append((node, InventoryRequest(site.epoch, self._hails)))
        site.timers.set(("hail", node), site.now + site.rules.hail_every_s)

    def _watch(self, node: int) -> None:
        info = self.nodes[node]
        due = float("inf") if info.down else self._lost_s(info)
        self._site.timers.set(("node", node), due)

    def _lost_s(self, info: Node) -> float:
        """Returns when a node counts as down if it stays silent."""
        return info.heard_s + info.excused_s + self._site.rules.node_patience_s

    def _check_settled(self) -> None:
        """Lets gangs of an earlier controller go on once all nodes have said who is there."""
        site = self._site
        if site.settled or not all(n.surveyed or n.down for n in self.nodes):
            return
        site.settled = True
        site.facts.append(ControllerChanged(site.now, site.epoch, READY))
        # The log still has what an earlier controller closed only for its own end.
        self._say(range(len(self.nodes)))
        for life in site.lives:
            if life.gang is not None:
                self._reconcile(life, life.gang)
                site.touch(life)

    def _reconcile(self, life: Life, gang: Gang) -> None:
        """Finds others for the wanted workers of a job that no node has."""
        absent = gang.find_missing(self._site.now)
        if absent and gang.has_lost_run():
            self._endings.lost(life, absent)
        else:
            self._placements.renumber(life, absent)

    # How a node changes.

    def _state(self, node: int) -> str:
        info = self.nodes[node]
        if info.down:
            return DOWN
        return DRAINING if info.drained or self._all_drained else UP

    def _change(self, nodes: Sequence[int]) -> None:
        """Tells the tables and the record of new states of nodes."""
        site = self._site
        changed = [(n, self._state(n)) for n in nodes]
        changed = [(n, state) for n, state in changed if state != self.state_of(n)]
        if not changed:
            return
        site.state.change_nodes(changed)
        site.changes.capacity = True
        self._say([n for n, _ in changed])
        for name, field in ((DRAINED, "drained"), (LOST, "down")):
            those = [n for n, info in enumerate(self.nodes) if getattr(info, field)]
            site.meta[name] = json.dumps(those)

    def _say(self, nodes: Sequence[int]) -> None:
        """Records the states of nodes where the log has others."""
        site = self._site
        news = [(n, self.state_of(n)) for n in nodes]
        news = [(n, state) for n, state in news if state != self._said.get(n, UP)]
        if not news:
            return
        site.facts.extend(NodeChanged(site.now, n, state) for n, state in news)
        site.changes.capacity = True
        self._said.update(news)
        closed = {str(n): state for n, state in self._said.items() if state != UP}
        site.meta[SAID] = json.dumps(closed)

    def _lose(self, node: int) -> None:
        """Takes a silent node out; its jobs train on without it if they can, or wait again."""
        site = self._site
        state = site.state
        info = self.nodes[node]
        info.down, info.surveyed = True, False
        # It may do yet what it was told before it fell silent, after it answers an older hail.
        info.hail_min = self._hails + 1
        placed = state.plan.placed.items()
        hit = sorted(row for row, p in placed if any(n == node for n, _ in p.spans))
        touched: set[int] = set()
        shrunk: list[Life] = []
        for row in hit:
            life, placement = site.lives.of_row(row), state.plan.placed[row]
            touched.update(site.sharers(placement))
            left = self._placements.left_of(life, {node})
            if left is not None:
                state.plan.shrink(row, left)
                shrunk.append(life)
                continue
            self._endings.stop(life, NODE_DOWN)
        self._change([node])
        for life in shrunk:
            self._go_on(life, node)
        for job in site.floor.jobs_on(node, len(info.gpus)):
            known = site.lives.get(job)
            if known is not None and known.gang is not None:
                known.gang.lose(node)
                site.touch(known)
        for row in hit:
            life = site.lives.of_row(row)
            if life not in shrunk:
                site.gang(life).roster.vacate(site.now, life.spec.grace_s, END)
                self._endings.retry(life, "NodeFail", f"node {node} was silent for too long")
        for key in [k for k, s in site.floor.unknown.items() if s.node == node]:
            site.floor.drop_unknown(key)
        site.retime(sorted(touched.difference(hit)))
        self._check_settled()

    def _go_on(self, life: Life, node: int) -> None:
        """Lets a job train with the GPUs it has left."""
        site, state = self._site, self._site.state
        placement = state.plan.placed[life.row]
        state.settle(life.row)
        rate = site.speed(life.row, placement)
        state.start(life.row, placement, rate, 0.0)
        site.facts.append(Shrunk(site.now, life.row, placement, rate, site.now))
        self._placements.keep_off(life, node, placement)
