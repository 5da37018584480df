"""What reports of training change in the tables: progress, rate, length; and pairs that do harm.

A report that says what the tables expect anyway is not put on record: the log holds what replay
needs, not a line a second for each job.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

from dovetail.core.messages import Foreseen, Measured
from dovetail.live.controller.live_jobs import Life
from dovetail.live.controller.site import Site
from dovetail.live.controller.terminations import PARTED, Endings
from dovetail.live.jobs.record import JobRecord
from dovetail.live.measuring.meter import Progress
from dovetail.live.workers.roster import END, SAVE
from dovetail.wire.worker import Training

SLACK_S, SLACK = 0.25, 0.01
"""Progress is believed anew when it is off by so many seconds and this part of what passed."""
RATE_SLACK = 0.02
LENGTH_SLACK = 0.01
NOISE = 5.0
"""How many times wider these are for real programs than for clocks: their iterations vary."""


class ProgressReports:
    """Takes reports of running jobs in."""

    def __init__(self, site: Site, endings: Endings) -> None:
        self._site = site
        self._endings = endings

    def take(self, life: Life, said: Training) -> None:
        """Takes one report in."""
        site, row = self._site, life.row
        placement = site.placement(life)
        if placement is None or life.starting:
            return
        life.trained = said
        life.record = _with_report(life, said)
        neighbours = site.neighbours(row, placement) if placement.gpu_ids else ()
        progress = site.meter.heard(
            row,
            said,
            site.now,
            spec=life.spec,
            placement=placement,
            neighbours=neighbours,
            since_s=life.manner_s,
        )
        if progress is None or not _is_sound(progress):
            return
        self._believe(life, progress)
        site.learn(news=progress.news)
        for other, where in neighbours:
            host, guest = (row, placement), (other, where)
            if site.state.placed_s[row] > site.state.placed_s[other]:
                host, guest = guest, host
            if site.meter.wrongly_paired(host, guest, site.state.view.switch_s["resume"]):
                self._part(site.lives.of_row(guest[0]), site.lives.of_row(host[0]))
                break
        if site.now >= life.persisted_s + site.rules.persist_every_s:
            site.lives.write(life)

    def _believe(self, life: Life, progress: Progress) -> None:
        site, row, state = self._site, life.row, self._site.state
        now = site.now
        expected_s = state.done_s((row,))[0]
        passed_s = max(0.0, now - state.since_s[row])
        off_s = abs(progress.done_s - expected_s)
        rate = state.rate[row]
        noise, fastest = 1.0 if life.spec.paced else NOISE, max(rate, progress.rate)
        slack_s = noise * (SLACK_S + SLACK * passed_s * fastest)
        if off_s > slack_s or abs(progress.rate - rate) > noise * RATE_SLACK * fastest:
            # Whole samples are no better known than what is believed, if that is as near.
            done_s = expected_s if off_s <= progress.grain_s else progress.done_s
            state.measure(row, done_s, progress.rate)
            site.facts.append(Measured(now, row, done_s, progress.rate))
        length_s, known_s = progress.length_s, state.length[row]
        if length_s is not None and abs(length_s - known_s) > noise * LENGTH_SLACK * known_s:
            state.relength(row, length_s)
            site.facts.append(Foreseen(now, row, length_s))

    def _part(self, guest: Life, host: Life) -> None:
        """Undoes a pairing that costs more than it gives, by letting the later job wait again."""
        if not (guest.is_placed and self._site.state.view.preemptible[guest.row]):
            return
        # Stopped as for the policy: what it did is saved.
        how = SAVE if guest.uses_train_protocol else END
        self._endings.requeue(guest, PARTED, guest.spec.grace_s, how)
        name = host.spec.called(host.record.job)
        said = f"{PARTED}: beside job {name} both lost more than waiting costs"
        self._site.lives.write(guest, detail=said)


def _is_sound(progress: Progress) -> bool:
    """Tells whether what a report means can be reckoned with and kept."""
    length_s = 0.0 if progress.length_s is None else progress.length_s
    return isfinite(progress.done_s) and isfinite(progress.rate) and isfinite(length_s)


def _with_report(life: Life, said: Training) -> JobRecord:
    return replace(
        life.record,
        samples=said.samples,
        total_samples=said.total_samples or life.record.total_samples,
        iteration_s=said.iteration_s,
    )
