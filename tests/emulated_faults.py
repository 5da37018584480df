"""Emulated nodes on which a test causes faults, at a time; each returns the reports up to then."""

from __future__ import annotations

from signal import SIGKILL

from dovetail.core.units import NEVER_S
from dovetail.live.emulation.nodes import EmulatedNodes
from dovetail.wire.agent import AgentReport


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
        self._jobs[job].hang(worker, self._now)
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
            if any(n == node for n, _ in job.gpus):
                job.vanish(node, self._now)
                self._touch(number)
        return reports + self._settle()
