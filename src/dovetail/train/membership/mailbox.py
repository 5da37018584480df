"""What the agent has ordered, kept for the training loop to look at when it can.

The thread that listens, the threads that build groups and the training loop all take part in one
protocol, `wire.generation`. This puts a lock around its state machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from dovetail.wire.generation import (
    CheckpointDone,
    Event,
    Instruction,
    Prepare,
    ShowLife,
    Stop,
    WorkerGenerations,
)
from dovetail.wire.worker import Regroup, ToWorker, WorkerRefused


class Mailbox:
    """The generations of this worker, for several threads. `refused` says why the agent refuses it.

    Older orders than the newest are dropped here, so that repeated and late messages do no harm.
    """

    def __init__(self, me: int = 0) -> None:
        self.refused: str | None = None
        self._state = WorkerGenerations(me)
        self._changed = threading.Condition()
        self._on_prepare: Callable[[Regroup], None] = lambda _: None
        self._on_stop: Callable[[int], None] = lambda _: None
        self._on_show_life: Callable[[ShowLife], None] = lambda _: None

    def listen(
        self,
        *,
        prepare: Callable[[Regroup], None],
        stop: Callable[[int], None],
        show_life: Callable[[ShowLife], None],
    ) -> None:
        """Calls these from now on, on the thread that listens, at messages that ask for it."""
        self._on_prepare, self._on_stop, self._on_show_life = prepare, stop, show_life

    def hear(self, message: ToWorker) -> None:
        """Takes a message of the agent."""
        if isinstance(message, WorkerRefused):
            self.refused = message.why
            return
        # Called without the lock: these start threads, and send.
        for instruction in self.handle(message):
            match instruction:
                case Prepare():
                    self._on_prepare(instruction.regroup)
                case Stop():
                    self._on_stop(instruction.generation)
                case ShowLife():
                    self._on_show_life(instruction)

    def handle(self, event: Event) -> list[Instruction]:
        """Passes an event to the state machine, wakes waiting threads, and returns what to do."""
        with self._changed:
            instructions = self._state.handle(event)
            self._changed.notify_all()
        return instructions

    @property
    def regroup(self) -> Regroup | None:
        """Returns the newest order."""
        return self._state.ordered

    @property
    def entered(self) -> int:
        """Returns the generation this worker is in, -1 before the first."""
        return self._state.entered

    @property
    def broken(self) -> str:
        """Returns why the generation it entered cannot go on, "" while it can."""
        return self._state.broken

    @property
    def save(self) -> bool:
        """Returns whether the agent asks for a checkpoint."""
        return self._state.save

    @property
    def leave(self) -> bool:
        """Returns whether all are to leave after that checkpoint."""
        return self._state.leave

    @property
    def is_left_out(self) -> bool:
        """Returns whether this worker has lost its place in the newest generation."""
        with self._changed:
            return self._state.is_left_out

    def propose(self, holders: Collection[int]) -> int:
        """Returns the generation to propose for the next step boundary; drops older ones."""
        with self._changed:
            return self._state.propose(holders)

    def is_ready(self, generation: int) -> bool:
        """Returns whether this worker has joined a generation that it may still enter."""
        with self._changed:
            return self._state.is_ready(generation)

    @property
    def open_generations(self) -> list[int]:
        """Returns the generations that this worker may still enter, the oldest first."""
        with self._changed:
            return self._state.open_generations

    @property
    def hosted(self) -> list[int]:
        """Returns the generations whose members may look for this worker, which hosts them."""
        with self._changed:
            return self._state.hosted

    def address_of(self, generation: int) -> str | None:
        """Returns where the members of a generation meet, if it was said."""
        with self._changed:
            return self._state.address_of(generation)

    def is_abandoned(self, generation: int) -> bool:
        """Returns whether the generation was abandoned."""
        return self._state.is_abandoned(generation)

    def is_overtaken(self, generation: int) -> bool:
        """Returns whether the generation is abandoned or a newer one was ordered."""
        with self._changed:
            return self._state.is_overtaken(generation)

    def checkpoint_done(self, *, left: bool) -> None:
        """Takes the order to save as carried out, and that to leave if all tried to."""
        self.handle(CheckpointDone(left))

    def wait(self, slice_s: float) -> None:
        """Waits until something changed, or a slice of time at most."""
        with self._changed:
            self._changed.wait(slice_s)
