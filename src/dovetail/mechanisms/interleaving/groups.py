"""Whom to interleave with whom: rounds of matching, merged only as far as is needed.

A node is a set of jobs; at first each job is one. In a round the nodes of a bucket (jobs that ask
for the same GPUs) are matched so that the efficiencies of the unions sum to the most, and matched
pairs become one node. Nodes of the same kinds are alike, so few are looked at.

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
    """How groups are made; see docs/policies/muri-s.md."""

    group_limit: int = 4
    matching: str = "blossom"
    merge_order: str = "efficiency"
    autopack: bool = True
    always_group: bool = False
    ordering: Ordering = BEST

    @property
    def rounds(self) -> int:
        """Returns how often nodes are matched: ceil(log2 k), or k as the artifact does."""
        if self.merge_order == "class":
            return self.group_limit
        return (self.group_limit - 1).bit_length()


class MergeNode(NamedTuple):
    """Jobs in one set, best first, as places in the line, and their kinds in order."""

    members: tuple[int, ...]
    kinds: Kinds


@dataclass(slots=True)
class SizeBucket:
    """Nodes that ask for the same GPUs, best first; alone: none of them may be interleaved.

    `together` gives the set in which a member runs now.
    """

    gpus: int
    memory_bytes: float
    alone: bool
    nodes: list[MergeNode]
    together: Mapping[int, int]


class _Pair(NamedTuple):
    """Two nodes of a bucket, by position, to be merged, and the efficiency of the union."""

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
    """Which nodes pair, where it is known how many of which types do: any nodes of a type do."""

    def __init__(self, bucket: SizeBucket, positions: list[list[int]], pairing: Pairing) -> None:
        self._bucket = bucket
        self._positions = positions
        self._type_of = {p: t for t, found in enumerate(positions) for p in found}
        self._left = dict(pairing)
        self._taken: set[int] = set()
        self.pairs: list[tuple[int, int]] = []

    def keep_together(self) -> None:
        """Pairs nodes whose members run together now, as far as the types allow."""
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
        """Pairs the others: the best node takes the best that is left for it."""
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
    for bucket, found in zip(buckets, pairs, strict=True):
        first_of = {pair.second: pair.first for pair in found}
        paired = {position for pair in found for position in (pair.first, pair.second)}
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
    """Merges the pairs of greatest efficiency, of equals those of more GPUs."""
    line = sorted(
        (-pair.weight, -bucket.gpus, number, pair.first, pair.second)
        for number, (bucket, found) in enumerate(zip(buckets, pairs, strict=True))
        for pair in found
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
    """Groups jobs of a bucket in order of priority, a full group after the other (Figure 11)."""
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
    """Dissolves groups whose members together do less than one alone would."""
    kept: list[tuple[SizeBucket, MergeNode]] = []
    for bucket, node in groups:
        if len(node.members) == 1 or rules.pays(node.kinds):
            kept.append((bucket, node))
        else:
            kept += [(bucket, MergeNode((member,), ())) for member in node.members]
    return kept
