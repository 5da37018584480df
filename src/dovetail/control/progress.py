"""Limits what a policy reads of the progress of jobs to what it declared to know.

A policy that reads lengths without declaring `length` is stopped at once, so that the "knows"
beside a result is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from dovetail.core.errors import DovetailError
from dovetail.core.job import Floats, Ints
from dovetail.core.view import Progress, Running


class GuardedRunning:
    """The columns of the running jobs without their lengths."""

    def __init__(self, table: Running) -> None:
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
    """The tables of a world as a policy reads them; lengths only if it declared to know them.

    The methods are those of the tables: a method that only passes a call on would cost as much as
    the lookup itself, at every decision.
    """

    def __init__(self, tables: Progress, knows: frozenset[str]) -> None:
        self.done_s, self.attained_gpu_s = tables.done_s, tables.attained_gpu_s
        self.pending_since_s = tables.pending_since_s
        self.running_since_s = tables.running_since_s
        self.left_s, self.length_s, self.running = tables.left_s, tables.length_s, tables.running
        self.length_quantiles = tables.length_quantiles
        self.knows_lengths = "length" in knows
        if not self.knows_lengths:
            self.left_s = self.length_s = self.length_quantiles = _refuse
            self.running = lambda: GuardedRunning(tables.running())


def _refuse(jobs: Sequence[int]) -> NoReturn:
    raise undeclared()


def undeclared() -> DovetailError:
    """Returns the error for a policy that reads lengths and does not declare `length`."""
    return DovetailError("the policy reads lengths, which it does not declare to know")
