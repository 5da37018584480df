"""Makes the frozen pictures that readers see, a few times a second at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.messages import Reason
from dovetail.core.policy import name_of
from dovetail.core.units import NEVER_S
from dovetail.live.controller.health import Health
from dovetail.live.controller.live_jobs import Life
from dovetail.live.controller.site import Site
from dovetail.live.jobs.status_snapshot import NodeStatus, RunningStatus, Snapshot


class Picture:
    """The latest picture; `changed` asks for a new one."""

    def __init__(self, site: Site, health: Health) -> None:
        self._site = site
        self._health = health
        self.published: Snapshot | None = None
        self.changed = True
        self._made_s = -NEVER_S
        self._decided_s = -NEVER_S
        self._decisions = 0
        self._reasons: tuple[Reason, ...] = ()
        self._reasons_s = -NEVER_S
        self._refused, self._refused_s = "", -NEVER_S

    def decided(self) -> None:
        """Takes note of a decision."""
        self._decided_s = self._site.now
        self._decisions += 1
        self.changed = True

    def explained(self, reasons: Sequence[Reason]) -> None:
        """Takes note of why jobs wait."""
        self._reasons = self._site.numbered(reasons)
        self._reasons_s = self._site.now

    def refused(self, why: str) -> None:
        """Takes note of a decision that did not stand."""
        self._refused, self._refused_s = why, self._site.now
        self.changed = True

    def unwritable(self, why: str) -> None:
        """Says at once that nothing can be written, or ("") that it can be again.

        The last picture stays but for that: the tables are in the middle of an instant.
        """
        if self.published is not None and self.published.unwritable != why:
            self.published = replace(self.published, unwritable=why)

    @property
    def due_s(self) -> float:
        """Returns when the next picture is due."""
        return self._made_s + self._site.rules.publish_every_s if self.changed else NEVER_S

    def publish_if_due(self) -> None:
        """Makes a new picture if something changed and the last one is old enough."""
        if self.changed and self._site.now >= self.due_s:
            self.published = self._draw()
            self._made_s, self.changed = self._site.now, False

    def _draw(self) -> Snapshot:
        site = self._site
        state, view, numbers = site.state, site.state.view, site.lives.numbers
        waiting, placed = list(state.waiting), sorted(state.plan.placed)
        return Snapshot(
            now_s=site.now,
            policy=name_of(site.policy),
            version=state.plan.version,
            decided_s=self._decided_s,
            nodes=tuple(
                NodeStatus(
                    n,
                    self._health.state_of(n),
                    info.gpus,
                    info.heard_s,
                    view.cluster.group_of(n).gpu_type,
                )
                for n, info in enumerate(self._health.nodes)
            ),
            running=tuple(self._status(site.lives.of_row(row)) for row in placed),
            waiting=tuple(numbers[row] for row in waiting),
            shapes=tuple(view.shape_of[row] for row in waiting),
            reasons=self._reasons,
            reasons_s=self._reasons_s,
            decisions=self._decisions,
            refused=self._refused,
            refused_s=self._refused_s,
        )

    def _status(self, life: Life) -> RunningStatus:
        site, row = self._site, life.row
        state = site.state
        left = state.left_s((row,))[0]
        return RunningStatus(
            job=life.record.job,
            placement=state.plan.placed[row],
            members=life.record.members,
            done_s=state.done_s((row,))[0],
            rate=state.rate[row] if not life.starting else 0.0,
            since_s=site.now,
            left_s=left,
            called=life.spec.called(life.record.job),
            awaits=site.awaited(life),
            deferred=_deferred(life),
        )


def _deferred(life: Life) -> tuple[str, ...]:
    """Returns why agents cannot start workers of a job yet, in the order of its nodes."""
    workers = life.gang.roster.workers.values() if life.gang is not None else ()
    late = {(w.node, w.deferred) for w in workers if w.deferred and not w.alive}
    return tuple(f"node {node}: {why}" for node, why in sorted(late))
