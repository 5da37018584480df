"""GIMBAL: another policy places jobs, this one calibrates how co-located jobs share their GPUs.

`inner` decides at the same instants as without GIMBAL. If it packs jobs so that a co-location set
is no star, they run one after another: the later one waits. Each set is then calibrated by a search
over limits of GPU shares and splits of batches, for `goal`; when the set changes, the search begins
again. A job that no longer shares gets its plain placement back.

`lgrr`, `liss` and `early-exit` switch the mechanisms off one by one. Goals are `jct`, `deadline`,
`makespan`, or a class of your own with two functions.

Source: GIMBAL sections 4 and 5; ALGORITHMS section 3. Knows: what `inner` knows, and length,
interference, memory. Stops running jobs: if `inner` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from dovetail.core.messages import Reason
from dovetail.core.order import Order
from dovetail.core.parameters import check_period
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.policy import (
    Decision,
    Kept,
    Policy,
    heeded,
    kept_of,
    name_of,
    recalled,
    register,
    reserves,
)
from dovetail.core.view import View
from dovetail.mechanisms.calibration.goals import goal_of
from dovetail.mechanisms.calibration.search import Means, Search
from dovetail.mechanisms.sharing.named_gpus import neighbours, try_place
from dovetail.mechanisms.sharing.stars import fits_beside, keeps_stars, stars_of
from dovetail.policies.lucid import Lucid


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The memory of the inner policy, its next wake time, and the searches of all sets."""

    inner: object
    wake_s: float = inf
    searches: tuple[Search, ...] = ()


@register("gimbal")
@dataclass(frozen=True, slots=True)
class Gimbal:
    """`inner`, with co-location sets calibrated for `goal`; a search begins after `monitor` s."""

    inner: Policy = field(default_factory=lambda: Lucid(score_limit=3, unequal=True))
    goal: str = "jct"
    lgrr: bool = True
    liss: bool = True
    early_exit: bool = True
    monitor: float = 30.0

    def __post_init__(self) -> None:
        goal_of(self.goal)
        check_period("monitor", self.monitor)
        if isinstance(self.inner, Gimbal):
            raise ValueError("inner is another policy: two searches would undo each other's limits")
        if "share" not in self.inner.powers:
            raise ValueError(
                f"inner is a policy that shares GPUs; '{name_of(self.inner)}' never does"
            )

    @property
    def knows(self) -> frozenset[str]:
        """Returns the knowledge of the inner policy and of calibration."""
        return self.inner.knows | {"length", "interference", "memory"}

    @property
    def powers(self) -> frozenset[str]:
        """Returns the powers of the inner policy, and `restrict`."""
        return self.inner.powers | {"restrict"}

    @property
    def heeds(self) -> frozenset[str]:
        """Returns the wishes of jobs that the inner policy heeds."""
        return heeded(self.inner)

    @property
    def reserves(self) -> bool:
        """Returns whether the inner policy keeps GPUs free until a time."""
        return reserves(self.inner)

    @property
    def order(self) -> Order:
        """Returns the rank of the inner policy."""
        return self.inner.order

    @property
    def initial(self) -> Calibrated:
        """Returns the memory before the first decision."""
        return Calibrated(self.inner.initial)

    def keep(self, memory: object, name_of: Callable[[int], str]) -> Kept:
        """Returns what the inner policy keeps for its next controller; sets are searched anew."""
        assert isinstance(memory, Calibrated)
        return kept_of(self.inner, memory.inner, name_of)

    def recall(self, kept: Kept, row_of: Mapping[str, int]) -> Calibrated:
        """Returns the first memory, with what the inner policy kept."""
        return Calibrated(recalled(self.inner, kept, row_of))

    def decide(self, view: View, memory: object) -> Decision:
        """Calls the inner policy, then calibrates co-location sets."""
        assert isinstance(memory, Calibrated)
        because: tuple[Reason, ...] | None = None
        order: Order | None = None
        draft: Draft | None = None
        if self._asks(view, memory):
            wanted = self.inner.decide(view, memory.inner)
            draft, because, order = wanted.draft, wanted.because, wanted.order
            memory = replace(memory, wake_s=wanted.wake_at)
            # Its memory of a plan that will not run as drafted would be wrong.
            if draft is None or not _keep_stars(view, draft):
                memory = replace(memory, inner=wanted.memory)
        if draft is None:
            draft = view.plan.draft()
        searches = self._searches(view, draft, memory.searches)
        _calibrate(draft, searches)
        wake_s = min([memory.wake_s, *(search.due_s for search in searches)])
        changed = draft if draft.changes() else None
        return Decision(changed, replace(memory, searches=searches), wake_s, because, order)

    def _asks(self, view: View, memory: Calibrated) -> bool:
        """Returns whether the inner policy is due, not only a search."""
        changes = view.changes
        happened = changes.arrived or changes.ended or changes.evicted or changes.capacity
        return bool(happened) or view.now >= memory.wake_s

    def _searches(self, view: View, draft: Draft, before: Sequence[Search]) -> tuple[Search, ...]:
        """Returns a search for each set; those of unchanged sets advance."""
        means = Means(
            goal_of(self.goal), self.lgrr, self.liss, self.early_exit, begin_s=self.monitor
        )
        known = {(search.star, search.bare): search for search in before}
        searches: list[Search] = []
        for star in stars_of(draft):
            bare = tuple(draft.placed[job].free() for job in star.members)
            if any(placement.interleave is not None for placement in bare):
                continue
            search = known.get((star, bare))
            if search is None:
                searches.append(Search.begin(view, star, bare, means))
            else:
                searches.append(search.advanced(view, means))
        return tuple(searches)


def _calibrate(draft: Draft, searches: Sequence[Search]) -> None:
    """Gives every job the limits and samples of its search; other jobs become plain."""
    wanted: dict[int, Placement] = {}
    for search in searches:
        for job, limits, bare in zip(search.star.members, search.now, search.bare, strict=True):
            wanted[job] = limits.on(bare)
    for job, placement in list(draft.placed.items()):
        after = wanted.get(job)
        if after is None:
            after = placement.free()
        if after != placement:
            draft.place(job, after)


def _keep_stars(view: View, draft: Draft) -> bool:
    """Undoes starts and moves after which a set is no star, the last job in order first.

    A running job stays where it was if it can. Returns whether any job was held back.
    """
    held_back = False
    changed = [c for c in draft.changes() if c.after is not None and c.after.gpu_ids]
    key = view.waiting.key
    changed.sort(key=lambda c: (c.before is None, key(c.job) if c.before is None else 0.0, c.job))
    for job, before, after in reversed(changed):
        if after is None or after.interleave is not None:
            continue
        if not neighbours(draft, job, after):
            continue
        if keeps_stars(view, draft, job, after) and fits_beside(view, draft, job, after):
            continue
        if before is None:
            draft.remove(job)
            held_back = True
        elif before.moves_to(after):
            held_back = _put_back(view, draft, job, before) or held_back
    return held_back


def _put_back(view: View, draft: Draft, job: int, before: Placement) -> bool:
    """Puts a moved job back onto its GPUs; False if it can no longer have them."""
    savepoint = draft.savepoint()
    if not try_place(draft, job, before):
        return False
    if not keeps_stars(view, draft, job, before):
        draft.undo_to(savepoint)
        return False
    return True
