"""Fair share: the user who held the fewest GPUs lately goes first.

    dovetail simulate trace.csv --policy examples/fair_share.py --cluster 4x8

Usage halves every `half_life_h` hours, as in Slurm. The ranking changes as users run, so the policy
returns a new `order` every `period_s` seconds while jobs wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.passes import fill
from dovetail.core.policy import Decision, register
from dovetail.core.view import View


def _usage_first(usage_gpu_s: Mapping[str, float], view: View, jobs: Sequence[int]) -> list[float]:
    return [usage_gpu_s.get(view.jobs.user[job], 0.0) for job in jobs]


@dataclass(frozen=True, slots=True)
class Usage:
    """The decayed GPU-seconds of each user at `at_s`, and the GPUs they hold since then."""

    at_s: float = 0.0
    gpu_s: Mapping[str, float] = field(default_factory=dict)
    held_gpus: Mapping[str, int] = field(default_factory=dict)
    rank_s: float = 0.0

    def used_until(self, now: float, half_life_s: float) -> dict[str, float]:
        """Returns the usage at a later time: the old one decayed, plus what ran since."""
        passed_s = now - self.at_s
        kept = 0.5 ** (passed_s / half_life_s)
        users = dict.fromkeys((*self.gpu_s, *self.held_gpus))
        return {
            user: self.gpu_s.get(user, 0.0) * kept + self.held_gpus.get(user, 0) * passed_s
            for user in users
        }


@register("fair-share")
@dataclass(frozen=True, slots=True)
class FairShare:
    """Least decayed usage first, ranked anew every `period_s`; exclusive, non-preemptive."""

    half_life_h: float = 24.0
    period_s: float = 300.0

    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(partial(_usage_first, {}))
    initial: ClassVar[Usage] = Usage()

    def __post_init__(self) -> None:
        if not (self.half_life_h > 0 and self.period_s > 0):
            raise ValueError("half-life-h and period-s are above 0")

    def decide(self, view: View, memory: Usage) -> Decision:
        """Starts jobs in order of their users' usage, and ranks them anew when that is due."""
        used = memory.used_until(view.now, self.half_life_h * 3600)
        due = view.now >= memory.rank_s
        rank_s = view.now + self.period_s if due else memory.rank_s
        draft, because = fill(view, "skip")
        held: dict[str, int] = {}
        for job, placement in (view.running if draft is None else draft.placed).items():
            user = view.jobs.user[job]
            held[user] = held.get(user, 0) + placement.gpus
        return Decision(
            draft,
            Usage(view.now, used, held, rank_s),
            wake_at=rank_s if view.waiting else inf,
            because=because,
            order=Order(partial(_usage_first, used)) if due else None,
        )
