"""When a job is saved, and from what it begins."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dovetail.train.data.samples import Order
from dovetail.train.state.checkpoint import DATA, Progress, Writer, restore, snapshot
from dovetail.train.state.state import Parts


def warn(what: str) -> None:
    """Tells the user, in the job's own log."""
    sys.stderr.write(f"dovetail: {what}\n")


@dataclass(frozen=True, slots=True)
class What:
    """What is saved."""

    parts: Parts
    progress: Progress
    order: Order
    loss: Callable[[], float | None]
    data: int

    def identity(self) -> dict[str, int]:
        """Returns what must be as it was, or samples would be used twice."""
        order = self.order
        return {"seed": order.seed, "samples": order.per_epoch, "shuffled": int(order.shuffle)}

    def description(self) -> dict[str, int]:
        """Returns that, and what is told of if it is not as it was."""
        return {**self.identity(), DATA: self.data}


class Saving:
    """The checkpoints of a job; without a folder there are none."""

    def __init__(
        self,
        folder: Path | None,
        every_s: float,
        what: What,
        *,
        told: Callable[[int, int], None],
        waits: Callable[[], None],
    ) -> None:
        """`told` hears what is safe; `waits` is called while the loop waits for the disk."""
        self._folder, self._every_s, self._what = folder, every_s, what
        self._saved_s = time.monotonic()
        self._writer = Writer(folder or Path(), told=told, failed=warn, waits=waits)

    @property
    def due(self) -> bool:
        """Returns whether it is time for the next."""
        if self._folder is None or self._writer.busy:
            return False
        return time.monotonic() - self._saved_s > self._every_s

    def first_state(self) -> Progress:
        """Returns where training begins: at the newest checkpoint, if there is one."""
        if self._folder is None:
            return Progress(known=True)
        found = restore(self._folder, self._what.parts, self._what.description())
        return found or Progress(known=True)

    def save(self, *, at_once: bool) -> bool:
        """Saves, or begins to; returns whether it is safe, as far as is known."""
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
        """Saves what training has come to."""
        if self._folder is not None:
            self.save(at_once=True)

    def close(self) -> None:
        """Returns when nothing is being written."""
        self._writer.wait()
