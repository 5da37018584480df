"""Decides when a job is saved, and where it starts from."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dovetail.train.data.samples import SampleOrder
from dovetail.train.state.checkpoint import (
    DATA,
    CheckpointWriter,
    TrainingPosition,
    restore,
    snapshot,
)
from dovetail.train.state.state import TrainingState


def warn(message: str) -> None:
    """Prints a warning to the job's own log."""
    sys.stderr.write(f"dovetail: {message}\n")


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """What a checkpoint is made of."""

    parts: TrainingState
    progress: TrainingPosition
    order: SampleOrder
    loss: Callable[[], float | None]
    data: int

    def identity(self) -> dict[str, int]:
        """Returns what must match on resume, or samples would be used twice."""
        order = self.order
        return {"seed": order.seed, "samples": order.per_epoch, "shuffled": int(order.shuffle)}

    def description(self) -> dict[str, int]:
        """Returns the identity and the checksum of the data, which may differ with a warning."""
        return {**self.identity(), DATA: self.data}


class SavePolicy:
    """The checkpoints of a job; without a folder there are none."""

    def __init__(
        self,
        folder: Path | None,
        every_s: float,
        what: CheckpointContents,
        *,
        told: Callable[[int, int], None],
        waits: Callable[[], None],
    ) -> None:
        """`told` is called for each safe checkpoint, `waits` while the loop waits for the disk."""
        self._folder, self._every_s, self._what = folder, every_s, what
        self._saved_s = time.monotonic()
        self._writer = CheckpointWriter(folder or Path(), told=told, failed=warn, waits=waits)

    @property
    def due(self) -> bool:
        """Returns whether it is time for the next checkpoint."""
        if self._folder is None or self._writer.busy:
            return False
        return time.monotonic() - self._saved_s > self._every_s

    def first_state(self) -> TrainingPosition:
        """Restores the newest checkpoint, if any, and returns where training starts."""
        if self._folder is None:
            return TrainingPosition(known=True)
        position = restore(self._folder, self._what.parts, self._what.description())
        return position or TrainingPosition(known=True)

    def save(self, *, at_once: bool) -> bool:
        """Saves, in the background unless `at_once`; returns False if the write failed."""
        self._saved_s = time.monotonic()
        if self._folder is None:
            warn("no checkpoint: the job has no folder")
            return False
        progress = self._what.progress
        progress.loss = self._what.loss()
        state = snapshot(self._what.parts, progress, self._what.description())
        if not at_once:
            self._writer.begin(state)
            return True
        return self._writer.write(state)

    def save_the_end(self) -> None:
        """Saves the final state."""
        if self._folder is not None:
            self.save(at_once=True)

    def close(self) -> None:
        """Waits until nothing is being written."""
        self._writer.wait()
