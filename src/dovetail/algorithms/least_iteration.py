"""The shortest iteration that any placement of a pipelined job could have: a lower bound of (7).

Heavy-Edge's packing counts as well placed, and a search may beat it; this nothing beats.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from dovetail.algorithms.job_graph import GraphStage
from dovetail.algorithms.pipeline_time import Links, stage_parts


@lru_cache(maxsize=4096)
def least_iteration_s(stages: tuple[GraphStage, ...], servers: tuple[Links, ...]) -> float:
    """Returns the seconds below which no placement on servers of these kinds has an iteration (7).

    A stage is whole on one server, or on n of them, where n is at least 2 and at least as many as
    the largest hold it: then its smallest piece has at most 1/n of its GPUs, on a server of any
    kind. Beside a piece there is room for so much of the neighbour stages, whose bytes then stay
    inside; all else passes the piece's share of the NIC. The least over all such pieces and servers
    holds for each stage, so the largest of these holds for the iteration.
    """
    largest = max(links.gpus for links in servers)
    return max(
        min(_least_stage_s(stages, s, links, largest) for links in servers)
        for s in range(len(stages))
    )


def _least_stage_s(stages: Sequence[GraphStage], s: int, links: Links, largest: int) -> float:
    """Returns the least seconds of the smallest piece of a stage on a server of one kind.

    GPUs are counted, as a replica with several slices may lie on several servers.
    """
    stage = stages[s]
    whole = stage.replicas * stage.slices
    pieces = max(2, -(-whole // largest))
    most = min(links.gpus, whole // pieces)
    sizes = [*range(1, most + 1), *([whole] if whole <= links.gpus else [])]
    return min(_piece_s(stages, s, gpus, links) for gpus in sizes)


def _piece_s(stages: Sequence[GraphStage], s: int, gpus: int, links: Links) -> float:
    """Returns the seconds of a piece of a stage if most of its neighbours is beside it."""
    held = [0.0] * len(stages)
    held[s] = gpus / stages[s].slices
    apart = sum(stage_parts(stages, s, held, links))
    room, saved = float(links.gpus - gpus), []
    for near in (s - 1, s + 1):
        if 0 <= near < len(stages):
            beside = list(held)
            beside[near] = float(stages[near].replicas)
            most = stages[near].replicas * stages[near].slices
            saved.append((max(0.0, apart - sum(stage_parts(stages, s, beside, links))), most))
    # What a neighbour saves is in proportion to its GPUs here: the one that saves most goes first.
    for seconds, most in sorted(saved, key=lambda one: -one[0] / one[1]):
        here = min(room, float(most))
        apart -= seconds * here / most
        room -= here
    return apart
