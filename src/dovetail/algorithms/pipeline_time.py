"""The time of one iteration of a placed pipelined job (A-SRPT equations (4) to (7)).

The equations are those of FIX-14, since the printed ones are damaged. Where a replica has several
slices, its GPUs share its exchange evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from dovetail.algorithms.heavy_edge import heavy_edge
from dovetail.algorithms.job_graph import GraphStage


class Links(NamedTuple):
    """A server of `gpus` GPUs: bytes per second between two of them, and through its NIC."""

    intra_bytes_per_s: float
    nic_bytes_per_s: float
    gpus: int


class StageSeconds(NamedTuple):
    """The seconds of one stage on one server: computing (4), activations (5), AllReduce (6)."""

    compute_s: float
    exchange_s: float
    all_reduce_s: float


def stage_parts(
    stages: Sequence[GraphStage], at: int, held: Sequence[float], links: Links
) -> StageSeconds:
    """Returns the seconds of stage `at` on a server with `held` replicas of each stage.

    (5): data that leaves the server passes the share of the NIC that the stage's GPUs own, so the
    number of replicas cancels. (6): a stage that spans servers reduces through that share, and
    inside a server at the speed between its GPUs.
    """
    stage, here, k = stages[at], held[at], stages[at].replicas
    nic = stage.slices / links.gpus * links.nic_bytes_per_s
    inside = stage.slices * links.intra_bytes_per_s
    exchange_s = 0.0
    for side, data in ((at - 1, stage.activation_in_bytes), (at + 1, stage.activation_out_bytes)):
        if 0 <= side < len(stages):
            near = held[side] / stages[side].replicas
            exchange_s += 2 * data * ((1 - near) / nic + near / inside)
    reduced = 2 * (k - 1) / k * stage.parameter_bytes
    all_reduce_s = reduced / (inside if here >= k else here * nic)
    return StageSeconds(stage.forward_s + stage.backward_s, exchange_s, all_reduce_s)


def server_s(stages: Sequence[GraphStage], held: Sequence[float], links: Links) -> float:
    """Returns the longest of the stages on one server: the inner maximum of (7)."""
    return max(
        (sum(stage_parts(stages, s, held, links)) for s, x in enumerate(held) if x > 0),
        default=0.0,
    )


def iteration_s(
    stages: Sequence[GraphStage], replicas: Sequence[Sequence[float]], links: Links
) -> float:
    """Returns alpha, the seconds of the slowest stage anywhere (7).

    `replicas[m][s]` are the replicas of stage s on server m.
    """
    return max(server_s(stages, held, links) for held in replicas)


def spread_s(stages: Sequence[GraphStage], links: Links) -> float:
    """Returns alpha_max: every replica alone on a server, however many servers there are."""
    alone = [[1.0 if s == at else 0.0 for s in range(len(stages))] for at in range(len(stages))]
    return iteration_s(stages, alone, links)


def packed_s(stages: tuple[GraphStage, ...], links: Links) -> float:
    """Returns the estimated alpha_min: servers full but for the last, Heavy-Edge, (7).

    Where a replica is wider than a server or slices leave gaps, ranks lie in their own order.
    """
    capacities = full_servers(sum(s.replicas * s.slices for s in stages), links.gpus)
    servers = heavy_edge(stages, capacities)
    if servers is None:
        servers = tuple(m for m, gpus in enumerate(capacities) for _ in range(gpus))
    return iteration_s(stages, replicas_held(stages, servers), links)


def full_servers(gpus: int, per_server: int) -> tuple[int, ...]:
    """Returns the GPUs of each server, on the fewest servers, all full but for the last."""
    servers = ceil(gpus / per_server)
    return (per_server,) * (servers - 1) + (gpus - per_server * (servers - 1),)


def replicas_held(stages: Sequence[GraphStage], server_of: Sequence[int]) -> list[list[float]]:
    """Returns the replicas of each stage on each server, from the server of each rank.

    A replica whose slices lie on several servers counts on each by its slices there.
    """
    gpus = [[0] * len(stages) for _ in range(max(server_of) + 1)]
    rank = 0
    for s, stage in enumerate(stages):
        for _ in range(stage.replicas * stage.slices):
            gpus[server_of[rank]][s] += 1
            rank += 1
    return [[n / stage.slices for n, stage in zip(row, stages, strict=True)] for row in gpus]
