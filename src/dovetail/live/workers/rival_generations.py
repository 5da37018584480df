"""Generations of one job that may train beside the next one: these two would be two copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.live.workers.failure_detector import FailureDetector
from dovetail.live.workers.roster import Roster
from dovetail.live.workers.worker_state import Worker


def with_rivals(
    members: tuple[int, ...],
    trainers: Sequence[Worker],
    roster: Roster,
    detector: FailureDetector,
) -> tuple[int, ...]:
    """Adds a worker of each ordered generation that may train beside one of these members.

    Workers enter newer generations as they hear of them. If two of those had no member in common,
    two copies of the job would train until a late order ends one. `trainers` are known to have the
    state of the job. Returns none where the job must wait for the end of such workers.
    """
    if not members:
        return ()
    candidates = trainers or _ready_ones(roster)
    joined = list(members)
    first = max(1, min((w.entered for w in candidates), default=0) + 1)
    known = detector.known_from(first)
    if len(known) <= roster.generation - first:
        # An earlier controller may have ordered others, of any of those that are there.
        joined += [w.worker for w in candidates if w.worker not in joined]
    for rivals in _rivals(known, roster):
        if rivals.isdisjoint(joined):
            there = [roster.workers[n] for n in sorted(rivals)]
            staying = [w.worker for w in there if w.stays]
            if not staying and any(roster.rules.lease_s(w.node) for w in there):
                return ()
            joined += staying[:1]
    return tuple(joined)


def _ready_ones(roster: Roster) -> list[Worker]:
    """Returns the workers that may train unheard: the report that they entered may be late."""
    return [w for w in roster.by_number() if w.ready >= 0 and w.stays]


def _rivals(
    generations: Sequence[tuple[int, tuple[int, ...]]], roster: Roster
) -> Iterator[set[int]]:
    """Yields the workers that are there of each of these generations, if it may train yet."""
    ended = roster.gone | roster.outcasts
    for generation, group in generations:
        there = [roster.workers[n] for n in group if n in roster.workers]
        # A step takes all members: those that ended, or are in a newer generation, too.
        if there and ended.isdisjoint(group) and all(w.entered <= generation for w in there):
            yield {w.worker for w in there}
