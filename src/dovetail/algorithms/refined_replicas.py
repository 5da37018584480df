"""A local search for placements with shorter iterations than those of Heavy-Edge (our own).

A-SRPT's greedy algorithm cuts a graph by bytes. But (7) counts the slowest stage anywhere: a stage
that is cut reduces its gradients through a share of the NIC that grows with its replicas on a
server, so the smallest piece of a stage decides and one replica beside a full server is worst. The
search starts from Heavy-Edge and three plain layouts, and moves replicas between the slowest server
and another while the slower of the two gets faster. So it is never slower than Heavy-Edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import inf

from dovetail.algorithms.heavy_edge import heavy_edge
from dovetail.algorithms.job_graph import GraphStage
from dovetail.algorithms.pipeline_time import Links, stage_parts

Held = dict[int, int]
"""The replicas of each stage on a server; stages without replicas there are left out."""
Ways = Callable[[int, int], Iterator[Held]]
"""Yields replicas for the first of two servers; the second one gets the rest of both."""
GAIN = 1e-9
"""Least relative gain of an exchange: exact ties change nothing."""


def refined_replicas(
    stages: tuple[GraphStage, ...],
    capacities: Sequence[int],
    servers: Sequence[Links],
) -> tuple[int, ...] | None:
    """Returns the server of each rank as `heavy_edge` does; None where no start fits.

    `servers` are the links of each server.
    """
    if not capacities:
        return None
    tables = {links: ReplicaTimes.of(stages, links) for links in dict.fromkeys(servers)}
    times = [tables[links] for links in servers]
    best: list[Held] | None = None
    best_s = inf
    seen: list[list[Held]] = []
    floor_s = min(table.floor_s for table in tables.values())
    for start in _starts(stages, capacities):
        if start is None or start in seen:
            continue
        seen.append(start)
        search = _Search(stages, capacities, times, start)
        seconds = search.descended_s()
        if seconds < best_s * (1 - GAIN):
            best, best_s = search.held, seconds
        if best_s <= floor_s * (1 + GAIN):
            break
    return None if best is None else _by_rank(stages, best)


class ReplicaTimes:
    """Equation (7) on one server in tables: seconds of each stage by the replicas there."""

    def __init__(self, stages: Sequence[GraphStage], links: Links) -> None:
        self._by_count: list[list[float]] = []
        self._saved_s: list[tuple[float, float]] = []
        self.floor_s = 0.0
        """No stage is faster than this wherever its replicas are."""
        for s, stage in enumerate(stages):
            by_count = [0.0]
            for here in range(1, stage.replicas + 1):
                alone = [0.0] * len(stages)
                alone[s] = float(here)
                by_count.append(sum(stage_parts(stages, s, alone, links)))
            self._by_count.append(by_count)
            before_s, after_s = (self._saved(stages, s, near, links) for near in (s - 1, s + 1))
            self._saved_s.append((before_s, after_s))
            beside_s = sum(
                stages[near].replicas * saved_s
                for near, saved_s in ((s - 1, before_s), (s + 1, after_s))
                if saved_s
            )
            self.floor_s = max(self.floor_s, min(by_count[1:]) - beside_s)

    @staticmethod
    def _saved(stages: Sequence[GraphStage], s: int, near: int, links: Links) -> float:
        """Returns the seconds stage `s` saves per replica of a neighbour stage on its server."""
        if not 0 <= near < len(stages):
            return 0.0
        apart = [0.0] * len(stages)
        apart[s] = 1.0
        beside = list(apart)
        beside[near] = 1.0
        away = stage_parts(stages, s, apart, links).exchange_s
        return away - stage_parts(stages, s, beside, links).exchange_s

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(stages: tuple[GraphStage, ...], links: Links) -> ReplicaTimes:
        """Returns the tables of a job on a kind of server, computed once."""
        return ReplicaTimes(stages, links)

    def stage_s(self, held: Held, s: int) -> float:
        """Returns the seconds of a stage on a server."""
        before_s, after_s = self._saved_s[s]
        seconds = self._by_count[s][held[s]]
        if s - 1 in held:
            seconds -= before_s * held[s - 1]
        if s + 1 in held:
            seconds -= after_s * held[s + 1]
        return seconds

    def slowest(self, held: Held) -> tuple[float, int]:
        """Returns the seconds of the slowest stage on a server, and that stage; -1 if empty."""
        return max(((self.stage_s(held, s), s) for s in held), default=(0.0, -1))

    def longest_s(self, held: Held, limit_s: float) -> float:
        """Returns the seconds of the slowest stage, infinite if they reach a limit."""
        longest_s = 0.0
        for s in held:
            seconds = self.stage_s(held, s)
            if seconds >= limit_s:
                return inf
            if seconds > longest_s:
                longest_s = seconds
        return longest_s


class _Search:
    """A descent: moves replicas between the slowest server and another while it helps."""

    def __init__(
        self,
        stages: Sequence[GraphStage],
        capacities: Sequence[int],
        times: Sequence[ReplicaTimes],
        held: list[Held],
    ) -> None:
        self._slices = [stage.slices for stage in stages]
        self._times = times
        self.held = list(held)
        self._room = [
            gpus - sum(self._slices[s] * here for s, here in on.items())
            for gpus, on in zip(capacities, held, strict=True)
        ]
        self._slowest = [time.slowest(on) for time, on in zip(times, held, strict=True)]

    def descended_s(self) -> float:
        """Moves replicas while it helps; returns the seconds of the slowest server."""
        while True:
            at = max(range(len(self.held)), key=lambda m: self._slowest[m][0])
            if not (self._improve(at, self._exchanges) or self._improve(at, self._recuts)):
                return self._slowest[at][0]

    def _improve(self, at: int, ways: Ways) -> bool:
        """Makes the exchange after which the slower of two servers is fastest, if one helps."""
        worst_s, slowest = self._slowest[at]
        mine = self._times[at]
        least_s, best = worst_s * (1 - GAIN), None
        for other, theirs in enumerate(self._times):
            if other == at:
                continue
            for here in ways(at, other):
                # Most ways leave the slowest stage as slow as it is.
                if slowest in here and mine.stage_s(here, slowest) >= least_s:
                    continue
                here_s = mine.longest_s(here, least_s)
                if here_s >= least_s:
                    continue
                there = self._rest(at, other, here)
                slower_s = max(here_s, theirs.longest_s(there, least_s))
                if slower_s < least_s:
                    least_s, best = slower_s, (other, here, there)
        if best is None:
            return False
        other, here, there = best
        for m, on in ((at, here), (other, there)):
            self._room[m] += self._gpus(self.held[m]) - self._gpus(on)
            self.held[m], self._slowest[m] = on, self._times[m].slowest(on)
        return True

    def _gpus(self, held: Held) -> int:
        return sum(self._slices[s] * here for s, here in held.items())

    def _rest(self, at: int, other: int, here: Held) -> Held:
        """Returns the replicas of two servers that are left for the second."""
        rest = dict(self.held[other])
        for s, held in self.held[at].items():
            rest[s] = rest.get(s, 0) + held
        for s, taken in here.items():
            if rest[s] == taken:
                del rest[s]
            else:
                rest[s] -= taken
        return rest

    def _exchanges(self, at: int, other: int) -> Iterator[Held]:
        """Yields the replicas of `at` after an exchange of two stages: one replica, or all.

        The slowest stage gets faster only if all of it leaves, or if more of it or of a neighbour
        stage arrives: nothing else is tried.
        """
        slowest = self._slowest[at][1]
        here, there = self.held[at], self.held[other]
        for take, most_taken in there.items():
            near = abs(take - slowest) <= 1
            for give in here if near else (slowest,):
                if give == take:
                    continue
                wide, narrow = self._slices[give], self._slices[take]
                most = min(here[give] * wide, most_taken * narrow)
                few = max(wide, narrow)
                for gpus in (few, most) if few < most else (most,):
                    given, taken = gpus // wide, gpus // narrow
                    if not near and given < here[give]:
                        continue
                    left = given * wide - taken * narrow
                    if given and taken and -self._room[at] <= left <= self._room[other]:
                        yield _moved(here, give, given, take, taken)

    def _recuts(self, at: int, other: int) -> Iterator[Held]:
        """Yields the replicas of `at` if it takes consecutive ranks of both servers.

        Ranks wrap around. This helps straight pipelines, whose neighbours an exchange of single
        stages would separate. Only for replicas of one width.
        """
        here, there = self.held[at], self.held[other]
        stages = sorted({*here, *there})
        if len({self._slices[s] for s in stages}) > 1:
            return
        ranks = [s for s in stages for _ in range(here.get(s, 0) + there.get(s, 0))]
        size = sum(here.values())
        here = dict(Counter(ranks[:size]))
        yield here
        for give, take in zip(ranks, ranks[size:] + ranks[:size], strict=True):
            if give != take:
                here = _moved(here, give, 1, take, 1)
                yield here


def _moved(held: Held, give: int, given: int, take: int, taken: int) -> Held:
    """Returns the replicas of a server after it gave some of one stage for some of another."""
    on = dict(held)
    on[take] = on.get(take, 0) + taken
    if on[give] == given:
        del on[give]
    else:
        on[give] -= given
    return on


def _starts(
    stages: tuple[GraphStage, ...], capacities: Sequence[int]
) -> Iterator[list[Held] | None]:
    """Yields Heavy-Edge's layout and three others; None for one that does not fit."""
    server_of = heavy_edge(stages, capacities)
    yield None if server_of is None else _counted(stages, server_of, len(capacities))
    yield _whole_stages(stages, capacities)
    fullest_first = sorted(range(len(capacities)), key=lambda m: (-capacities[m], m))
    for order in (fullest_first, fullest_first[::-1]):
        yield _in_order(stages, capacities, order)


def _counted(stages: Sequence[GraphStage], server_of: Sequence[int], servers: int) -> list[Held]:
    """Returns the replicas on each server, from the server of each rank."""
    held: list[Held] = [{} for _ in range(servers)]
    rank = 0
    for s, stage in enumerate(stages):
        for _ in range(stage.replicas):
            on = held[server_of[rank]]
            on[s] = on.get(s, 0) + 1
            rank += stage.slices
    return held


def _whole_stages(stages: Sequence[GraphStage], capacities: Sequence[int]) -> list[Held] | None:
    """Returns a layout that cuts as few stages as it can, the most to reduce first.

    A stage goes to the tightest server with room for all of it; otherwise to the servers with most
    room, one after another.
    """
    room, held = list(capacities), [Held() for _ in capacities]
    reduced = [(k.replicas - 1) / k.replicas * k.parameter_bytes for k in stages]
    for s in sorted(range(len(stages)), key=lambda s: (-reduced[s], s)):
        left, slices = stages[s].replicas, stages[s].slices
        while left:
            whole = [m for m, free in enumerate(room) if free >= left * slices]
            if whole:
                at = min(whole, key=lambda m: (room[m], m))
            else:
                at = max(range(len(room)), key=lambda m: (room[m], -m))
            here = min(left, room[at] // slices)
            if not here:
                return None
            held[at][s] = here
            room[at] -= here * slices
            left -= here
    return held


def _in_order(
    stages: Sequence[GraphStage], capacities: Sequence[int], order: Sequence[int]
) -> list[Held] | None:
    """Returns the ranks in their own order on servers in this order."""
    held = [Held() for _ in capacities]
    servers = iter(order)
    at, room = -1, 0
    for s, stage in enumerate(stages):
        left = stage.replicas
        while left:
            here = min(left, room // stage.slices)
            if here:
                held[at][s] = here
                room -= here * stage.slices
                left -= here
                continue
            at = next(servers, -1)
            if at < 0:
                return None
            room = capacities[at]
    return held


def _by_rank(stages: Sequence[GraphStage], held: Sequence[Held]) -> tuple[int, ...]:
    """Returns the server of each rank: the replicas of a stage by server."""
    return tuple(
        m
        for s, stage in enumerate(stages)
        for m, on in enumerate(held)
        for _ in range(on.get(s, 0) * stage.slices)
    )
