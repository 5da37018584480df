"""Jobs that are half as fast on two nodes as on one, and a third as fast on three."""

from dataclasses import replace

from dovetail.core.beliefs import Physics
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.physics.linear import LinearSpeed, LinearStructure, linear_physics


class SpreadSpeed(LinearSpeed):
    """Linear on one node."""

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        return super().whole(job, placement, done_s) / placement.nodes


def spread_physics(jobs: JobTable) -> Physics:
    """Returns linear physics in which few nodes are better than many."""
    return replace(linear_physics(jobs), speed=SpreadSpeed(LinearStructure(jobs)))
