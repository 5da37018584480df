"""Muri-L: jobs take turns on the resources of the same GPUs; least attained service first.

At every tick jobs are taken in order of time run so far times GPUs, as many as full groups
on all GPUs could serve. Those that ask for the same GPUs are matched, round by round, so that
the resources are idle least, and pairs are merged only while the demand exceeds the cluster.
Groups run in order of their best job; who finds no room waits.

Source: Muri (SIGCOMM 2022) sections 4.1 and 4.2; ALGORITHMS section 4. Knows: attained
service, stages, memory. Stops running jobs: yes, at ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats
from dovetail.core.order import Order
from dovetail.core.policy import Decision, register
from dovetail.core.view import Running, View
from dovetail.mechanisms.interleave_groups import Grouping
from dovetail.mechanisms.interleave_rules import Ordering
from dovetail.mechanisms.interleaved_pass import check, decide
from dovetail.mechanisms.slots import Priority

DIGITS = 6
"""Service counts in millionths of a GPU-second: sums that differ by rounding are equal."""


def _waiting(view: View, jobs: Sequence[int]) -> list[float]:
    return [round(s, DIGITS) for s in view.progress.attained_gpu_s(jobs)]


def _running(running: Running) -> Floats:
    return np.round(running.attained_gpu_s, DIGITS)


@register("muri-l")
@dataclass(frozen=True, slots=True)
class MuriL:
    """Interleaving groups by Blossom matching, least attained service first; preemptive."""

    tick_s: float = 360.0
    group_limit: int = 4
    matching: str = "blossom"
    merge_order: str = "efficiency"
    autopack: bool = True
    always_group: bool = False
    ordering: str = "best"
    orderings: str = "all"
    ties: str = "submission"

    knows: ClassVar[frozenset[str]] = frozenset({"attained service", "stages", "memory"})
    powers: ClassVar[frozenset[str]] = frozenset({"interleave", "preempt", "migrate"})
    order: ClassVar[Order] = Order(_waiting)
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        check(self.grouping, self.tick_s)
        Priority(_running, self.ties)

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
        return decide(view, Priority(_running, self.ties), self.grouping, self.tick_s)
