"""Groups of jobs to interleave, by rounds of matching.

A node is a set of jobs; at first each job is a node. In a round the nodes of a bucket (jobs of
equal size) are matched so that the sum of the efficiencies of the unions is greatest, and matched
pairs merge while demand exceeds capacity. Nodes of the same kinds are equal, so few are compared.

Source: Muri Algorithm 1; ALGORITHMS section 4.2 (FIX-12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.algorithms.matching import Pairing
from dovetail.mechanisms.interleaving.rules import BEST, Kinds, Ordering, SetRules

MERGE_ORDERS = ("efficiency", "class")
MATCHINGS = ("blossom", "priority")


@dataclass(frozen=True, slots=True)
class Grouping:
    """The parameters of grouping; see docs/policies/muri-s.md."""

    group_limit: int = 4
    matching: str = "blossom"
    merge_order: str = "efficiency"
    autopack: bool = True
    always_group: bool = False
    ordering: Ordering = BEST

    @property
    def rounds(self) -> int:
        """Returns the rounds of matching: ceil(log2 k), or k as in the artifact."""
        if self.merge_order == "class":
            return self.group_limit
        return (self.group_limit - 1).bit_length()


class MergeNode(NamedTuple):
    """Jobs of one set, best first, as positions in the line, and their sorted kinds."""

    members: tuple[int, ...]
    kinds: Kinds


@dataclass(slots=True)
class SizeBucket:
    """Nodes of equal size, best first; `alone`: they may not be interleaved.

    `together` maps a member to the set in which it runs now.
    """

    gpus: int
    memory_bytes: float
    alone: bool
    nodes: list[MergeNode]
    together: Mapping[int, int]


class _Pair(NamedTuple):
    """Two nodes of a bucket to merge, by position, and the efficiency of their union."""

    first: int
    second: int
    weight: int


def group(
    rules: SetRules, how: Grouping, buckets: Sequence[SizeBucket], capacity_gpus: int
) -> list[tuple[SizeBucket, MergeNode]]:
    """Returns the groups made of the nodes of all buckets, merged while demand exceeds capacity.

    Buckets come in order of their best job.
    """
    limit = min(how.group_limit, rules.members_max)
    demand = sum(b.gpus * len(b.nodes) for b in buckets)
    capacity = -1 if how.always_group else capacity_gpus
    if demand > capacity:
        if how.matching == "priority":
            _merge_in_line(rules, buckets, limit, demand - capacity)
        else:
            _merge_in_rounds(rules, how, buckets, limit, demand - capacity)
    groups = [(b, node) for b in buckets for node in b.nodes]
    return _unpacked(rules, groups) if how.autopack else groups


def _merge_in_rounds(
    rules: SetRules, how: Grouping, buckets: Sequence[SizeBucket], limit: int, excess: int
) -> None:
    for _ in range(how.rounds):
        pairs = [() if b.alone else _matched(rules, b, limit) for b in buckets]
        if not any(pairs):
            return
        if how.merge_order == "class":
            excess = _merge_by_class(buckets, pairs, excess)
        else:
            excess = _merge_by_efficiency(buckets, pairs, excess)
        if excess <= 0:
            return


def _matched(rules: SetRules, bucket: SizeBucket, limit: int) -> Sequence[_Pair]:
    """Returns the pairs of a matching of greatest weight."""
    positions: dict[Kinds, list[int]] = {}
    for position, node in enumerate(bucket.nodes):
        positions.setdefault(node.kinds, []).append(position)
    types = sorted(positions)
    counts = [len(positions[kinds]) for kinds in types]
    pairing = rules.pairing(types, counts, bucket.memory_bytes, limit)
    seats = _Seats(bucket, [positions[kinds] for kinds in types], pairing)
    seats.keep_together()
    seats.fill()
    memory, nodes = bucket.memory_bytes, bucket.nodes
    return [
        _Pair(i, j, rules.weight(tuple(sorted(nodes[i].kinds + nodes[j].kinds)), memory))
        for i, j in sorted(seats.pairs)
    ]


class _Seats:
    """Pairs of nodes from the numbers of pairs by type; all nodes of a type are equal."""

    def __init__(self, bucket: SizeBucket, positions: list[list[int]], pairing: Pairing) -> None:
        self._bucket = bucket
        self._positions = positions
        self._type_of = {p: t for t, same_type in enumerate(positions) for p in same_type}
        self._left = dict(pairing)
        self._taken: set[int] = set()
        self.pairs: list[tuple[int, int]] = []

    def keep_together(self) -> None:
        """Pairs nodes whose members run together now, if their types are to be paired."""
        together = self._bucket.together
        if not together:
            return
        sets: dict[int, list[int]] = {}
        for position, node in enumerate(self._bucket.nodes):
            for number in dict.fromkeys(together.get(member, -1) for member in node.members):
                if number >= 0:
                    sets.setdefault(number, []).append(position)
        for mates in sets.values():
            for i, first in enumerate(mates):
                for second in mates[i + 1 :]:
                    self._pair(first, second)

    def fill(self) -> None:
        """Pairs the other nodes: the best node gets the best partner that is left."""
        queues = [[p for p in reversed(f) if p not in self._taken] for f in self._positions]
        for position in sorted(self._type_of):
            if position in self._taken:
                continue
            mine = self._type_of[position]
            queues[mine].pop()
            best: list[int] | None = None
            for a, b in self._left:
                if mine in (a, b):
                    queue = queues[b if a == mine else a]
                    if queue and (best is None or queue[-1] < best[-1]):
                        best = queue
            if best is not None:
                self._pair(position, best.pop())

    def _pair(self, first: int, second: int) -> None:
        if first in self._taken or second in self._taken:
            return
        a, b = sorted((self._type_of[first], self._type_of[second]))
        left = self._left.get((a, b), 0)
        if not left:
            return
        if left == 1:
            del self._left[a, b]
        else:
            self._left[a, b] = left - 1
        self._taken.update((first, second))
        self.pairs.append((min(first, second), max(first, second)))


def _merge_by_class(
    buckets: Sequence[SizeBucket], pairs: Sequence[Sequence[_Pair]], excess: int
) -> int:
    """Merges pairs one after another, bucket by bucket, in order of their later node."""
    for bucket, matches in zip(buckets, pairs, strict=True):
        first_of = {pair.second: pair.first for pair in matches}
        paired = {position for pair in matches for position in (pair.first, pair.second)}
        after: list[MergeNode] = []
        for position, node in enumerate(bucket.nodes):
            if position not in paired:
                after.append(node)
            elif position in first_of:
                both = (bucket.nodes[first_of[position]], node)
                if excess > 0:
                    after.append(_union(both))
                    excess -= bucket.gpus
                else:
                    after.extend(both)
        bucket.nodes = after
    return excess


def _merge_by_efficiency(
    buckets: Sequence[SizeBucket], pairs: Sequence[Sequence[_Pair]], excess: int
) -> int:
    """Merges the pairs of greatest efficiency first, of equals those with more GPUs."""
    line = sorted(
        (-pair.weight, -bucket.gpus, number, pair.first, pair.second)
        for number, (bucket, matches) in enumerate(zip(buckets, pairs, strict=True))
        for pair in matches
    )
    gone: list[set[int]] = [set() for _ in buckets]
    for _, _, number, first, second in line:
        if excess <= 0:
            break
        bucket = buckets[number]
        bucket.nodes[first] = _union((bucket.nodes[first], bucket.nodes[second]))
        gone[number].add(second)
        excess -= bucket.gpus
    for bucket, merged in zip(buckets, gone, strict=True):
        if merged:
            bucket.nodes = sorted(n for p, n in enumerate(bucket.nodes) if p not in merged)
    return excess


def _merge_in_line(rules: SetRules, buckets: Sequence[SizeBucket], limit: int, excess: int) -> None:
    """Groups jobs of a bucket in order of priority, one full group after another (Figure 11)."""
    for bucket in buckets:
        if bucket.alone:
            continue
        after: list[MergeNode] = []
        for start in range(0, len(bucket.nodes), limit):
            head = bucket.nodes[start]
            singles: list[MergeNode] = []
            for node in bucket.nodes[start + 1 : start + limit]:
                union = _union((head, node))
                if excess > 0 and rules.weight(union.kinds, bucket.memory_bytes):
                    head = union
                    excess -= bucket.gpus
                else:
                    singles.append(node)
            after += [head, *singles]
        bucket.nodes = after


def _union(nodes: tuple[MergeNode, MergeNode]) -> MergeNode:
    first, second = nodes
    return MergeNode(
        tuple(sorted(first.members + second.members)), tuple(sorted(first.kinds + second.kinds))
    )


def _unpacked(
    rules: SetRules, groups: list[tuple[SizeBucket, MergeNode]]
) -> list[tuple[SizeBucket, MergeNode]]:
    """Dissolves groups whose members together do less than one member alone."""
    packed: list[tuple[SizeBucket, MergeNode]] = []
    for bucket, node in groups:
        if len(node.members) == 1 or rules.pays(node.kinds):
            packed.append((bucket, node))
        else:
            packed += [(bucket, MergeNode((member,), ())) for member in node.members]
    return packed
