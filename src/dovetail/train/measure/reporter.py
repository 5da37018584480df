"""Reports the progress of training to the agent, about once a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from dovetail.train.measure.stages import StageTimer
from dovetail.train.process.device import DeviceMemory
from dovetail.train.state.checkpoint import TrainingPosition
from dovetail.train.sync.gradients import Gradients
from dovetail.wire.worker import FromWorker, Training

REPEAT_S = 30.0
"""The last report is repeated after this long, while the script does other things than training."""


class TrainingReports:
    """Reports for the job; only the leading worker calls `record_iteration`."""

    def __init__(
        self,
        send: Callable[[FromWorker], None],
        progress: TrainingPosition,
        timer: StageTimer,
        memory: DeviceMemory,
        *,
        total: int,
        every_s: float,
    ) -> None:
        self._send, self._progress, self._timer = send, progress, timer
        self._memory, self._total, self._every_s = memory, total, every_s
        self._last: Training | None = None
        self._sent_s = time.monotonic()
        self.restart()

    def restart(self) -> None:
        """Restarts the measurement of speed: the workers have changed."""
        self._since_s = time.monotonic()
        self._samples = self._progress.samples

    def record_iteration(self, generation: int, gradients: Gradients) -> None:
        """Records an iteration, and reports if it is time."""
        now_s = time.monotonic()
        if now_s - self._since_s < self._every_s:
            return
        # Only now: reading the loss waits for the device, which once a second costs nothing.
        p, loss = self._progress, gradients.loss()
        self._last = Training(
            generation,
            p.step,
            p.samples,
            (p.samples - self._samples) / (now_s - self._since_s),
            self._timer.iteration_s,
            self._total,
            self._memory.held_bytes(),
            self._timer.stage_s,
            loss if loss is not None and math.isfinite(loss) else None,
        )
        self._send_last(now_s)
        self.restart()

    def repeat_old_report(self) -> None:
        """Repeats the last report if it is old: the script is busy with something else."""
        now_s = time.monotonic()
        if self._last is not None and now_s - self._sent_s > REPEAT_S:
            self._send_last(now_s)

    def _send_last(self, now_s: float) -> None:
        self._sent_s = now_s
        if self._last is not None:
            self._send(self._last)
