"""Nodes that a job has just left: Slurm gives them to nobody until its epilog is over.

The main scheduler passes over a completing node; backfill plans a job that would get one for the
next second, so that it starts in a later pass.

Source: Slurm 22.05, `node_scheduler.c`, `_pick_best_nodes`; `backfill.c`, `_attempt_backfill`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from dovetail.core.placement import Placement
from dovetail.mechanisms.slurm.cycles import ROUNDING_S
from dovetail.mechanisms.slurm.preemption import node_bits

NO_NODES: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Completing:
    """The nodes of each running job, and sets of nodes with the time until which they complete."""

    held: Mapping[int, int] = field(default_factory=lambda: NO_NODES, hash=False)
    until_s: tuple[tuple[int, float], ...] = ()

    def at(self, now: float, running: Mapping[int, Placement], takes_s: float) -> Completing:
        """Returns the nodes at a time; `takes_s` is how long one completes."""
        gone = [(job, nodes) for job, nodes in self.held.items() if job not in running]
        if not gone and not self.until_s and len(self.held) == len(running):
            return self
        held = {
            job: self.held[job] if job in self.held else node_bits(placement.spans)
            for job, placement in running.items()
        }
        left = [each for each in self.until_s if each[1] > now + ROUNDING_S]
        left += [(nodes, now + self.takes_s(job, takes_s)) for job, nodes in gone]
        return replace(self, held=MappingProxyType(held), until_s=tuple(left))

    def takes_s(self, job: int, usual_s: float) -> float:
        """Returns how long the nodes of a job complete."""
        return usual_s

    @property
    def nodes(self) -> int:
        """Returns the nodes that complete as a set."""
        nodes = 0
        for each, _ in self.until_s:
            nodes |= each
        return nodes
