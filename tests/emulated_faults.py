"""Emulated nodes on which a test causes faults, at a time; each returns the reports up to then."""

from __future__ import annotations

from signal import SIGKILL

from dovetail.core.units import NEVER_S
from dovetail.live.emulation.nodes import EmulatedNodes
from dovetail.wire.agent import AgentReport
from dovetail.wire.worker import STALL_S


class FaultyNodes(EmulatedNodes):
    """Emulated nodes whose workers are killed, hang or slow down, and that are lost."""

    def kill(self, job: int, worker: int, now: float) -> list[AgentReport]:
        """Kills a worker, as by SIGKILL from outside."""
        reports = self.tick(now)
        self.signal_worker(job, worker, SIGKILL)
        return reports + self._settle()

    def hang(self, job: int, worker: int, now: float) -> list[AgentReport]:
        """Makes a worker hang: it hears nothing, and SIGKILL alone ends it."""
        reports = self.tick(now)
        synthetic = self._jobs[job]
        synthetic.workers[worker].hung = True
        if synthetic._current is not None and worker in synthetic._current.members:
            # Training stops at once; the others notice only when they have waited for so long.
            synthetic._stop(self._now)
            synthetic._lost_s = self._now + STALL_S
        self._touch(job)
        return reports + self._settle()

    def slow(self, job: int, worker: int, factor: float, now: float) -> list[AgentReport]:
        """Makes a worker, and with it its whole job, so many times slower."""
        reports = self.tick(now)
        self._jobs[job].workers[worker].slowed = factor
        self._touch(job)
        return reports + self._settle()

    def lose_node(self, node: int, now: float) -> list[AgentReport]:
        """Removes a node with its agent and workers: it reports nothing any more."""
        reports = self.tick(now)
        self._nodes[node].agent = None
        self._agent_due[node] = NEVER_S
        for number, job in list(self._jobs.items()):
            here = [w.number for w in job.workers.values() if w.node == node]
            if not here:
                continue
            before = len(job.out)
            # The workers elsewhere notice the loss, and report it; those of the node do not.
            job.end(here, 0, self._now)
            job.out[before:] = [e for e in job.out[before:] if e.node != node]
            self._touch(number)
        return reports + self._settle()
