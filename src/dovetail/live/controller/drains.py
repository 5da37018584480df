"""The drains of nodes and of single GPUs: who asked for them, and what the plan sees of them.

A plan counts GPUs, or gives them names of its own. So a GPU that drains stays in the tables while
jobs hold it; these jobs are not stopped, moved or resized, and no other joins them. When the last
one has left it, the node has one GPU fewer. Under a policy that shares GPUs the whole node drains
until then, since there any job may be put beside any other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Set

from dovetail.core.cluster import DOWN, DRAINING
from dovetail.core.units import NEVER_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.live_jobs import LiveJobs
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.jobs.drain_reason import DrainReason, restored, stored
from dovetail.live.workers.gpu_assignment import Gpu

LOG = logging.getLogger(__name__)
DRAINS = "drains"
"""The name in the journal of the notes on what is drained."""


class Drains:
    """Owns what is drained, with the notes of everybody who wants it so."""

    def __init__(
        self,
        jobs: LiveJobs,
        tables: RecordedTables,
        log: InstantLog,
        gpus: GpuMap,
        monitor: NodeMonitor,
        powers: Set[str],
    ) -> None:
        self._jobs = jobs
        self._tables = tables
        self._log = log
        self._gpus = gpus
        self._monitor = monitor
        self._shares = bool(powers & {"share", "interleave"})
        # (node, GPU, or -1 for the node) -> source -> note.
        self._notes: dict[Gpu, dict[str, DrainReason]] = {}
        # The name in the plan of each drained GPU that nobody holds.
        self._names: dict[Gpu, int] = {}
        self._shown: tuple[tuple[tuple[int, int, str], ...], frozenset[int]] = ((), frozenset())

    def begin(self, meta: dict[str, str]) -> None:
        """Restores what was drained, after the jobs and the states of nodes."""
        for node, note in self._stored(meta.get(DRAINS, "[]")):
            health = self._monitor.nodes[node]
            known = note.gpu < len(health.gpus) if note.gpu >= 0 else health.is_drained
            if known:
                self._notes.setdefault((node, note.gpu), {})[note.source] = note
        for node, health in enumerate(self._monitor.nodes):
            if health.is_drained and (node, -1) not in self._notes:
                self._notes[node, -1] = {"user": DrainReason()}
        self._close()
        self.settle()

    def _stored(self, text: str) -> list[tuple[int, DrainReason]]:
        try:
            listed = [restored(values) for values in json.loads(text)]
        except (ValueError, TypeError):
            listed = [None]
        if None in listed:
            LOG.error("'%s' is damaged in the store and left out: %.80r", DRAINS, text)
        nodes = range(len(self._monitor.nodes))
        return [one for one in listed if one is not None and one[0] in nodes]

    # What users and agents ask for.

    def add(self, node: int, note: DrainReason) -> bool:
        """Drains a node or a GPU; True if this source had not drained it yet."""
        if not self._exists(node, note.gpu):
            return False
        there = self._notes.setdefault((node, note.gpu), {})
        is_new = note.source not in there
        if is_new or (there[note.source].reason, there[note.source].by) != (note.reason, note.by):
            there[note.source] = note
            self._changed(node, note.gpu)
        return is_new

    def remove(self, node: int, gpu: int, source: str = "") -> None:
        """Takes back the drain of one source, or of all."""
        there = self._notes.get((node, gpu))
        if there is None or (source and source not in there):
            return
        kept = {name: note for name, note in there.items() if source and name != source}
        if kept:
            self._notes[node, gpu] = kept
        else:
            del self._notes[node, gpu]
        self._changed(node, gpu)

    def _exists(self, node: int, gpu: int) -> bool:
        nodes = self._monitor.nodes
        return 0 <= node < len(nodes) and -1 <= gpu < len(nodes[node].gpus)

    def _changed(self, node: int, gpu: int) -> None:
        if gpu < 0:
            self._monitor.drain(node, undo=(node, gpu) not in self._notes)
        self._close()
        notes = [stored(at, n) for (at, _), there in self._notes.items() for n in there.values()]
        self._log.keep(DRAINS, json.dumps(notes))

    def notes(self, node: int) -> tuple[DrainReason, ...]:
        """Returns why a node and GPUs of it are drained: the node first, then GPUs in order."""
        mine = sorted((gpu, there) for (at, gpu), there in self._notes.items() if at == node)
        return tuple(note for _, there in mine for note in there.values())

    def is_drained(self, node: int, gpu: int) -> bool:
        """Returns whether one GPU is drained by itself."""
        return (node, gpu) in self._notes

    # What the plan sees.

    def _close(self) -> None:
        self._gpus.assignment.closed = {gpu for gpu in self._notes if gpu[1] >= 0}

    def settle(self) -> None:
        """Shows the plan which GPUs are drained, and who may finish there; before each decision."""
        closed = self._gpus.assignment.closed
        if not closed and not self._shown[0]:
            return
        self._names = {gpu: name for gpu, name in self._names.items() if gpu in closed}
        states: list[tuple[int, int, str]] = []
        staying: set[int] = set()
        held = [gpu for gpu in sorted(closed) if self._gpus.assignment.on.get(gpu)]
        for place in held:
            self._names.pop(place, None)
            states += [(place[0], n, DRAINING) for n in self._gpus.assignment.names_of(place)]
            staying |= {self._row(number) for number in self._gpus.assignment.on[place]}
        for node, gpu in sorted(closed.difference(held)):
            name = self._names.get((node, gpu), -1)
            if name < 0:
                name = self._names[node, gpu] = self._free_name(node, gpu)
            states.append((node, name, DOWN))
        shown = tuple(sorted(states)), frozenset(staying)
        if shown != self._shown:
            self._shown = shown
            self._tables.change_gpus(*shown)
        self._monitor.close({node for node, _ in held} if self._shares else set())

    def _row(self, number: int) -> int:
        job = self._jobs.get(number)
        assert job is not None, "only a job that is not over has GPUs"
        return job.row

    def _free_name(self, node: int, gpu: int) -> int:
        """Returns a name that no job has in the plan; of the GPU's island, where there are some."""
        occupancy = self._tables.state.plan.occupancy
        taken = {name for (at, _), name in self._names.items() if at == node}
        size = occupancy.islands.sizes[node] if occupancy.islands is not None else NEVER_S
        names = range(occupancy.cluster.installed[node])
        free = [n for n in names if (node, n) not in occupancy.named and n not in taken]
        return min(free, key=lambda name: (name // size != gpu // size, name != gpu, name))
