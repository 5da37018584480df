"""What the agent has told this worker, kept for the training loop to look at when it can."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from dovetail.wire.worker import Abandon, Checkpoint, Meet, Regroup, ToWorker, WorkerRefused


@dataclass(slots=True)
class Mailbox:
    """The newest orders. Written by the thread that listens, read by the training loop.

    Older orders than the newest are dropped here, so that repeated and late messages do no harm.
    """

    regroup: Regroup | None = None
    save: bool = False
    leave: bool = False
    refused: str | None = None
    _abandoned: set[int] = field(default_factory=set)
    _meets: dict[int, str] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _on_regroup: Callable[[Regroup], None] | None = None
    _on_abandon: Callable[[int], None] | None = None

    def hear(self, message: ToWorker) -> None:
        """Takes a message in."""
        fresh, probed = None, None
        with self._changed:
            if isinstance(message, Regroup):
                if self.regroup is None or message.generation > self.regroup.generation:
                    self.regroup = fresh = message
                    # Who is to leave is told no newer generation: this one is wanted again.
                    self.leave = False
            elif isinstance(message, Meet):
                self._meets[message.generation] = message.address
            elif isinstance(message, Abandon):
                self._abandoned.add(message.generation)
                probed = message.generation
            elif isinstance(message, Checkpoint):
                self.save, self.leave = True, self.leave or message.leave
            elif isinstance(message, WorkerRefused):
                self.refused = message.why
            self._changed.notify_all()
        if fresh is not None and self._on_regroup is not None:
            self._on_regroup(fresh)
        if probed is not None and self._on_abandon is not None:
            self._on_abandon(probed)

    def listen(self, *, regroup: Callable[[Regroup], None], abandon: Callable[[int], None]) -> None:
        """Calls these from now on, on the thread that hears: at a newer Regroup, at an Abandon."""
        self._on_regroup, self._on_abandon = regroup, abandon

    def address_of(self, generation: int) -> str | None:
        """Returns where the members of a generation meet, if it was said."""
        with self._changed:
            return self._meets.get(generation)

    def gave_up(self, generation: int) -> bool:
        """Returns whether the generation was abandoned."""
        return generation in self._abandoned

    def overtaken(self, generation: int) -> bool:
        """Returns whether the generation is abandoned or a newer one was ordered."""
        with self._changed:
            newest = self.regroup.generation if self.regroup else -1
            return generation in self._abandoned or generation < newest

    def checkpoint_done(self, *, left: bool) -> None:
        """Takes the order to save as carried out, and that to leave if all tried to."""
        with self._changed:
            self.save = False
            self.leave = self.leave and not left

    def nudge(self) -> None:
        """Wakes whoever waits, to look again."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, slice_s: float) -> None:
        """Waits until something changed, or a slice of time at most."""
        with self._changed:
            self._changed.wait(slice_s)
