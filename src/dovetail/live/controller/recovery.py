"""How a new controller takes up where the last one was killed.

The tables are filled from the records of the jobs that are not over; running jobs keep their
GPUs in the plan. What their workers really do is not on record: the nodes are hailed, and no gang
moves before their inventories have come (or their patience is over).
"""

from __future__ import annotations

from dovetail.control.state import JobProgress as Course
from dovetail.core.errors import IllegalPlan
from dovetail.core.messages import RECOVERING, ControllerChanged, Foreseen, Measured
from dovetail.core.policy import spell
from dovetail.live.controller.arrivals import Arrivals
from dovetail.live.controller.health import Health
from dovetail.live.controller.live_jobs import Life
from dovetail.live.controller.plan_applier import Placements
from dovetail.live.controller.site import Site, list_of
from dovetail.live.jobs.lifecycle import State, Step
from dovetail.live.store.recovered import Recovered


def take_up(site: Site, arrivals: Arrivals, health: Health, recovered: Recovered) -> None:
    """Fills the tables from what is on record, and hails the nodes.

    What the tables now hold of a job is a fact wherever the log cannot tell it: a replay fills
    its tables in the same way.
    """
    begun = ControllerChanged(site.now, site.epoch, RECOVERING, spell(site.policy))
    site.facts.append(begun)
    # Closed nodes may still hold what ran there, so states come after the running jobs.
    placed = []
    # One that began anew stands behind those that were submitted until then.
    jobs = sorted(recovered.jobs, key=lambda job: (job[1].queued_s, job[1].job))
    for life in arrivals.enter(jobs):
        if life.is_placed:
            try:
                _take_up_placed(site, life)
                placed.append(life)
            except IllegalPlan as error:
                # The cluster is another one than it was.
                site.lives.step(life, Step.STOPPED, placement=None, members=(), detail=str(error))
        elif life.record.state is State.COMPLETING:
            site.gang(life).restore(None, life.record.group, ran=False)
            site.touch(life)
    for life in placed:
        # What a job may hold depends on who else is on its GPUs.
        _restore_gang(site, life)
    health.begin(dict(recovered.meta))
    for life in site.lives:
        if life.record.state is State.PENDING:
            _take_up_waiting(site, arrivals, life)


def _take_up_placed(site: Site, life: Life) -> None:
    record, state = life.record, site.state
    assert record.placement is not None
    running = record.state is State.RUNNING
    passed_s = site.now - record.since_s
    course = Course(
        done_s=record.done_s + (record.rate * passed_s if running else 0.0),
        attained_gpu_s=record.attained_gpu_s + record.placement.gpus * passed_s,
        first_start_s=record.first_start_s,
        pending_s=record.since_s,
        placed_s=site.now,
        from_s=site.now,
    )
    state.restore(life.row, course, record.placement, record.rate)
    _say_length(site, life)
    # A job that still switched or started makes progress from now on, as the tables have it.
    site.facts.append(Measured(site.now, life.row, course.done_s, record.rate))
    life.placed_done_s, life.starting = record.done_s, not running
    life.manner_s = site.now
    site.seats.restore(record.job, record.placement, record.members)


def _restore_gang(site: Site, life: Life) -> None:
    running = life.record.state is State.RUNNING
    desired = Placements(site).desired(life)
    site.gang(life).restore(desired, life.record.group, ran=running)
    if running:
        # It ran on while no controller counted.
        life.running_s = life.record.since_s
        due_s = life.running_s + life.spec.time_limit_s - life.record.ran_s
        site.timers.set(("limit", life.record.job), max(site.now, due_s))


def _take_up_waiting(site: Site, arrivals: Arrivals, life: Life) -> None:
    record = life.record
    course = Course(
        done_s=record.done_s,
        attained_gpu_s=record.attained_gpu_s,
        first_start_s=record.first_start_s,
        pending_s=record.since_s,
    )
    site.state.restore(life.row, course, None)
    if record.reason:
        # It did not wait in the queue: the log need not be told that it leaves it.
        site.state.withdraw(life.row)
    else:
        _say_length(site, life)
    arrivals.consider(life)
    arrived = list_of(site.changes.arrived)
    if life.row in site.state.waiting and life.row not in arrived[-1:]:
        arrived.append(life.row)


def _say_length(site: Site, life: Life) -> None:
    """Records the length of a job where it is another one than when the job was submitted."""
    if site.state.forecast.learns:
        site.facts.append(Foreseen(site.now, life.row, site.state.length[life.row]))
