"""When and where Slurm expects a waiting job to start: running jobs taken away in order of end.

Ends are by time limits. Slurm tests after groups of jobs that end close together: within a window
that begins at 30 s and doubles with each test (`bf_window_linear` adds to it instead). So an
expected start may lie later than the first moment with room.

Source: `src/plugins/select/cons_common/job_test.c`, `_will_run_test` and `_guess_job_end`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.core.job import Shape
from dovetail.core.placement import Spans
from dovetail.core.placing import Placing
from dovetail.mechanisms.slurm.node_choice import FreeNodes, choose
from dovetail.mechanisms.slurm.parameters import SlurmParameters

FIRST_WINDOW_S = 30
GROUP_MAX = 200
"""Jobs taken away before the next look at the clock, in Slurm; no test is made then."""


class LimitEnd(NamedTuple):
    """When a running job ends by its time limit, in whole seconds, and what it frees."""

    end_s: int
    job: int
    nodes: int
    spans: Spans
    shape: Shape


@dataclass(slots=True)
class StartForecast:
    """What is needed to expect starts at one instant."""

    parameters: SlurmParameters
    placing: Placing
    now_s: int
    ends: Sequence[LimitEnd]

    def later(self, state: FreeNodes, shape: Shape, nodes: int) -> tuple[int, Spans] | None:
        """Returns when and where a job of a shape that finds no room now is expected to start.

        `state` is changed: jobs are taken away.
        """
        window_s, barrier_s, position = FIRST_WINDOW_S, 0, 0
        while position < len(self.ends):
            position, barrier_s, last, full = self._take_away(
                state, nodes, position, barrier_s, window_s
            )
            if last is None:
                return None
            if full:
                continue
            window_s = self._widened(window_s)
            if position < len(self.ends):
                while self.ends[position].end_s > barrier_s + window_s:
                    window_s = self._widened(window_s)
            spans = choose(state, self.placing, shape, nodes)
            if spans is not None:
                return self._start_s(last.end_s), spans
        return None

    def _take_away(
        self, state: FreeNodes, nodes: int, position: int, barrier_s: int, window_s: int
    ) -> tuple[int, int, LimitEnd | None, bool]:
        """Takes jobs away that end close together.

        Returns the position and the barrier after them, the last of them, and if they were too
        many.
        """
        last: LimitEnd | None = None
        taken = 0
        while position < len(self.ends):
            end = self.ends[position]
            position += 1
            if not end.nodes & nodes:
                continue
            if not barrier_s:
                barrier_s = end.end_s + window_s - end.end_s % window_s
            last = end
            state.release(end.spans, end.shape)
            if position < len(self.ends):
                if self.ends[position].end_s > barrier_s + window_s:
                    break
                if taken > GROUP_MAX:
                    return position, barrier_s, last, True
                taken += 1
        return position, barrier_s, last, False

    def _widened(self, window_s: int) -> int:
        linear_s = self.parameters.bf_window_linear
        return window_s + linear_s if linear_s else 2 * window_s

    def _start_s(self, end_s: int) -> int:
        """Returns when a job's GPUs come free: it may be past its limit and still run."""
        if end_s > self.now_s:
            return end_s
        given_s = self.parameters.kill_wait + 60 * self.parameters.over_time_limit
        return max(end_s + given_s, self.now_s + 1)
