"""What Muri-S and Muri-L share: their parameters, and the pass that these choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.job import Floats
from dovetail.core.policy import Decision
from dovetail.core.view import Running, View
from dovetail.mechanisms.interleaving.groups import Grouping
from dovetail.mechanisms.interleaving.muri_pass import check, decide
from dovetail.mechanisms.interleaving.rules import Ordering
from dovetail.mechanisms.interleaving.slots import Priority

DIGITS = 6
"""Service counts in millionths of a GPU-second: sums that differ by rounding are equal."""


@dataclass(frozen=True, slots=True)
class InterleavedPolicy:
    """Interleaving groups by Blossom matching, in the order of `running_keys`; preemptive."""

    tick_s: float = 360.0
    group_limit: int = 4
    matching: str = "blossom"
    merge_order: str = "efficiency"
    autopack: bool = True
    always_group: bool = False
    ordering: str = "best"
    orderings: str = "all"
    ties: str = "submission"

    powers: ClassVar[frozenset[str]] = frozenset({"interleave", "preempt", "migrate"})
    initial: ClassVar[None] = None
    running_keys: ClassVar[Callable[[Running], Floats]]

    def __post_init__(self) -> None:
        check(self.grouping, self.tick_s)
        Priority(type(self).running_keys, self.ties)

    @property
    def priority(self) -> Priority:
        """Returns how running jobs rank, and which of equals goes first."""
        return Priority(type(self).running_keys, self.ties)

    @property
    def grouping(self) -> Grouping:
        """Returns how groups are made."""
        return Grouping(
            self.group_limit,
            self.matching,
            self.merge_order,
            self.autopack,
            self.always_group,
            Ordering.named(self.ordering, self.orderings),
        )

    def decide(self, view: View, memory: object) -> Decision:
        """Groups and places everybody anew at a tick."""
        return decide(view, self.priority, self.grouping, self.tick_s)
