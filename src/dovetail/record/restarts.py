"""Why runs in a log ended before their jobs did: by preemption, with a lost node, by a requeue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.core.job import Bools, Ints
from dovetail.core.trace import Recorded

PREEMPTED = ("PREEMPTED",)
NODE_FAILURES = ("NODE_FAIL", "BOOT_FAIL")
"""States that Slurm gives to a run; every other one that a run has before the last is a requeue."""


@dataclass(frozen=True, slots=True)
class RestartCauses:
    """How often each job lost its GPUs before its end, by cause.

    `untold` are starts after the first of which the log does not say why.
    """

    preemptions: Ints
    node_failures: Ints
    requeues: Ints
    untold: Ints

    def of(self, rows: Bools) -> dict[str, int | None]:
        """Returns the sums over some jobs; preemptions are None if no cause is told."""
        causes = (self.preemptions, self.node_failures, self.requeues, self.untold)
        preempted, failed, requeued, untold = (int(n[rows].sum()) for n in causes)
        silent = untold > 0 and not preempted + failed + requeued
        return {
            "preemptions": None if silent else preempted,
            "node_failures": failed or None,
            "requeues": requeued or None,
            "restarts_untold": untold or None,
        }


def restart_causes(record: Recorded) -> RestartCauses:
    """Returns why the jobs of a log restarted, row by row."""
    n = len(record)
    preempted, failed, requeued = (np.zeros(n, np.int64) for _ in range(3))
    if record.runs is not None:
        for code, name in enumerate(record.runs.cause.names):
            rows = record.runs.job[record.runs.cause.codes == code]
            kind = preempted if name in PREEMPTED else requeued
            kind = failed if name in NODE_FAILURES else kind
            kind += np.bincount(rows, minlength=n)
    untold = np.maximum(record.restarts - preempted - failed - requeued, 0)
    return RestartCauses(preempted, failed, requeued, untold)
