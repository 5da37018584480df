"""The gangs of the live jobs: made when first used, and touched when they must act."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.core.replacing import replace
from dovetail.live.controller.live_jobs import LiveJob
from dovetail.live.jobs.job_environment import with_restarts
from dovetail.live.jobs.record import JobRecord
from dovetail.live.workers.first_worker import FirstWorker
from dovetail.live.workers.gang import Gang, make_gang
from dovetail.live.workers.node_addresses import NodeAddresses
from dovetail.live.workers.rules import Rules
from dovetail.wire.agent import StartWorker
from dovetail.wire.spec import JobSpec

Launches = Callable[[int, JobSpec], StartWorker]
"""Returns the order that starts a worker of a job, without what differs among its workers."""


class LiveGangs:
    """Makes gangs and owns the set of touched ones, which must act before the instant is over.

    Of a gang that is merely heard the events are handled: there is nothing for it to decide.

    `acted` are the jobs whose gangs were reconciled since the last snapshot for readers.
    `settled` is False until every node has reported its inventory or is down. No gang acts before
    that: its workers may still run on a node that has not answered the new controller.
    """

    def __init__(self, launches: Launches, rules: Rules, hosts: NodeAddresses) -> None:
        self.hosts = hosts
        self._launches = launches
        self._rules = rules
        self._touched: dict[int, LiveJob] = {}
        self._heard: dict[int, LiveJob] = {}
        self.acted: set[int] = set()
        self.settled = False

    def of(self, job: LiveJob) -> Gang:
        """Returns the gang of a job; makes it if there is none."""
        if job.gang is None:
            record, spec = job.record, job.spec
            job.gang = make_gang(
                self._launches(record.job, spec),
                self._rules,
                generation=record.generation,
                fixed=not spec.elastic,
                hands_over=spec.paced,
                first=_first_worker(spec, record),
                hosts=self.hosts,
            )
            self.update_restarts(job)
        return job.gang

    def update_restarts(self, job: LiveJob) -> None:
        """Passes the number of restarts, and the lineage, to the workers that start from now on.

        Where checkpoints travel, also the newest of them.
        """
        if job.gang is None:
            self.of(job)
            return
        gang, restarts = job.gang, job.record.restarts
        ships = gang.roster.launch.ships
        environment = with_restarts(gang.roster.launch.environment, job.spec, restarts)
        gang.roster.launch = replace(
            gang.roster.launch,
            environment=environment,
            restarts=restarts,
            lineage=job.record.lineage,
            saved_step=job.record.saved_step if ships else -1,
        )

    def touch(self, job: LiveJob) -> None:
        """Marks the gang of a job to be reconciled before the instant is over."""
        self._touched[job.number] = job

    def hear(self, job: LiveJob) -> None:
        """Marks the gang of a job whose workers train on: its events await handling."""
        self._heard[job.number] = job

    @property
    def are_touched(self) -> bool:
        """Returns whether any gang is marked."""
        return bool(self._touched or self._heard)

    def take_touched(self) -> list[LiveJob]:
        """Returns the jobs whose gangs are marked, and clears the marks."""
        touched, self._touched = self._touched, {}
        self.acted.update(touched)
        return list(touched.values())

    def take_heard(self) -> list[LiveJob]:
        """Returns the jobs whose gangs are merely heard, and clears their marks."""
        heard, self._heard = self._heard, {}
        return [job for number, job in heard.items() if number not in self._touched]


def _first_worker(spec: JobSpec, record: JobRecord) -> FirstWorker:
    """Returns the start of a job's workers: with a range of GPUs, one worker starts alone."""
    ranged = spec.elastic and spec.trains and not spec.paced
    return FirstWorker(ranged, alone=spec.min_gpus == 1, spoke=spec.paced or record.spoke)
