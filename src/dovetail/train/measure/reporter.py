"""Reports the progress of training to the agent, about once a second."""

from __future__ import annotations

import math
import time

from dovetail.train.measure.stages import StageTimer
from dovetail.train.membership.agent_connection import AgentChannel
from dovetail.train.process.device_memory import DeviceMemory
from dovetail.train.state.checkpoint import TrainingPosition
from dovetail.train.sync.gradients import Gradients
from dovetail.wire.worker import Training

REPEAT_S = 30.0
"""The last report is repeated after this long, while the script does other things than training."""


class TrainingReporter:
    """Reports for the job; only the leading worker calls `iterated`."""

    def __init__(
        self,
        agent: AgentChannel,
        progress: TrainingPosition,
        watch: StageTimer,
        memory: DeviceMemory,
        *,
        total: int,
        every_s: float,
    ) -> None:
        self._agent, self._progress, self._watch = agent, progress, watch
        self._memory, self._total, self._every_s = memory, total, every_s
        self._last: Training | None = None
        self._said_s = time.monotonic()
        self.restart()

    def restart(self) -> None:
        """Restarts the measurement of speed: the workers have changed."""
        self._since_s = time.monotonic()
        self._samples = self._progress.samples

    def iterated(self, generation: int, gradients: Gradients) -> None:
        """Records an iteration, and reports if it is time."""
        now_s = time.monotonic()
        if now_s - self._since_s < self._every_s:
            return
        p, loss = self._progress, gradients.loss()
        self._last = Training(
            generation,
            p.step,
            p.samples,
            (p.samples - self._samples) / (now_s - self._since_s),
            self._watch.iteration_s,
            self._total,
            self._memory.held_bytes(),
            self._watch.stage_s,
            loss if loss is not None and math.isfinite(loss) else None,
        )
        self._say(now_s)
        self.restart()

    def lives(self) -> None:
        """Repeats the last report if it is old: the script is busy with something else."""
        now_s = time.monotonic()
        if self._last is not None and now_s - self._said_s > REPEAT_S:
            self._say(now_s)

    def _say(self, now_s: float) -> None:
        self._said_s = now_s
        if self._last is not None:
            self._agent.send(self._last)
