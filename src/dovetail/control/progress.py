"""What a policy may read of the jobs' lives: only what it declared to know.

The tables behind it belong to the world. A policy that reads lengths without declaring `length`
is stopped at once, so the "knows" beside a result can be believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dovetail.control.running import RunningTable
from dovetail.core.errors import DovetailError
from dovetail.core.job import Floats, Ints


class ProgressTables(Protocol):
    """The tables of a world that say how far jobs are; `control.state.ClusterState` is one."""

    @property
    def pending_s(self) -> Sequence[float]:
        """Returns when each waiting job last became pending."""
        ...

    @property
    def placed_s(self) -> Sequence[float]:
        """Returns when each running job was last placed."""
        ...

    def done_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the progress made, in solo seconds."""
        ...

    def left_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the forecast length less the progress, never below zero."""
        ...

    def length_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the forecast lengths."""
        ...

    def attained_gpu_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the GPU-seconds held so far."""
        ...

    def running(self) -> RunningTable:
        """Returns the running jobs as columns."""
        ...


class GuardedRunning:
    """The columns of the running jobs without their lengths."""

    def __init__(self, table: RunningTable) -> None:
        self._table = table

    @property
    def jobs(self) -> Ints:
        """Returns the running jobs."""
        return self._table.jobs

    @property
    def gpus(self) -> Floats:
        """Returns the GPUs each job holds."""
        return self._table.gpus

    @property
    def attained_gpu_s(self) -> Floats:
        """Returns the GPU-seconds held so far."""
        return self._table.attained_gpu_s

    @property
    def left_s(self) -> Floats:
        """Raises: lengths were not declared."""
        raise undeclared()


class GuardedProgress:
    """Reads the world's tables for a policy; lengths only if it declared to know them."""

    def __init__(self, tables: ProgressTables, knows: frozenset[str]) -> None:
        self._tables = tables
        self._knows_length = "length" in knows

    def done_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the progress made, in solo seconds."""
        return self._tables.done_s(jobs)

    def left_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the forecast length less the progress, never below zero."""
        if not self._knows_length:
            raise undeclared()
        return self._tables.left_s(jobs)

    def length_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the forecast lengths."""
        if not self._knows_length:
            raise undeclared()
        return self._tables.length_s(jobs)

    def attained_gpu_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the GPU-seconds held so far."""
        return self._tables.attained_gpu_s(jobs)

    def running(self) -> RunningTable | GuardedRunning:
        """Returns the running jobs as columns."""
        running = self._tables.running()
        return running if self._knows_length else GuardedRunning(running)

    def pending_since_s(self, job: int) -> float:
        """Returns when a waiting job last became pending."""
        return self._tables.pending_s[job]

    def running_since_s(self, job: int) -> float:
        """Returns when a running job was last placed."""
        return self._tables.placed_s[job]


def undeclared() -> DovetailError:
    """Returns what a policy is stopped with that asks for lengths and does not declare `length`."""
    return DovetailError("the policy reads lengths, which it does not declare to know")
