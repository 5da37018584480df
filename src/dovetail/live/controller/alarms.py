"""What happens when an alarm is due."""

from __future__ import annotations

from dovetail.live.controller.admission import Admission
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_loss import NodeLoss
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.terminations import Terminations
from dovetail.live.controller.timers import Alarm, Timers
from dovetail.live.jobs.lifecycle import Transition


class Alarms:
    """Acts on the alarms that are due."""

    def __init__(
        self,
        jobs: LiveJobs,
        gangs: LiveGangs,
        timers: Timers,
        members: GangMembers,
        admission: Admission,
        terminations: Terminations,
        monitor: NodeMonitor,
        node_loss: NodeLoss,
    ) -> None:
        self._jobs = jobs
        self._gangs = gangs
        self._timers = timers
        self._members = members
        self._admission = admission
        self._terminations = terminations
        self._monitor = monitor
        self._node_loss = node_loss

    def ring(self, now: float) -> None:
        """Acts on every alarm that is due."""
        for alarm, number in self._timers.due(now):
            if alarm is Alarm.NODE_SILENT:
                self._check_node(number)
            elif alarm is Alarm.INVENTORY:
                self._monitor.request_inventory(number)
            else:
                job = self._jobs.get(number)
                if job is not None:
                    self._ring_for(job, alarm)

    def _check_node(self, node: int) -> None:
        if self._monitor.is_overdue(node):
            self._node_loss.declare_down(node)
        self._monitor.watch(node)

    def _ring_for(self, job: LiveJob, alarm: Alarm) -> None:
        match alarm:
            case Alarm.GANG:
                self._gangs.touch(job)
            case Alarm.TIME_LIMIT:
                detail = f"it ran for {job.spec.time_limit_s:g} s"
                self._terminations.end(job, Transition.TIMED_OUT, reason="TimeLimit", detail=detail)
            case Alarm.DEADLINE:
                detail = "its deadline has passed"
                self._terminations.end(job, Transition.DEADLINE, reason="DeadLine", detail=detail)
            case Alarm.REPLACEMENTS:
                self._members.replace_lost(job)
            case Alarm.BEGIN:
                self._admission.consider(job)
