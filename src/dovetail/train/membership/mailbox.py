"""The generations of this worker, shared by the threads that take part in the protocol.

The thread of the agent's connection, the threads that build groups and the training loop all drive
one state machine, `wire.generation`. The mailbox puts a lock around it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dovetail.wire.generation import Event, Instruction, Prepare, ShowLife, Stop, WorkerGenerations
from dovetail.wire.worker import Regroup


class Mailbox:
    """The state machine of this worker and its lock. Orders older than the newest are dropped.

    Single attributes of `generations` may be read without the lock: assigning one is atomic. Call
    its methods with `lock`, since they walk through dictionaries that other threads change.
    """

    def __init__(self, me: int = 0) -> None:
        self.generations = WorkerGenerations(me)
        self.lock = threading.Condition()
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
        """Sets what carries out the agent's messages, on the thread of its connection."""
        self._on_prepare, self._on_stop, self._on_show_life = prepare, stop, show_life

    def receive(self, message: Event) -> None:
        """Processes a message of the agent."""
        # Carried out without the lock. `prepare` starts a thread that takes the lock itself, and
        # `stop` aborts the collective in which the training loop may be waiting.
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
        with self.lock:
            instructions = self.generations.handle(event)
            self.lock.notify_all()
        return instructions

    def wait(self, timeout_s: float) -> None:
        """Waits until an event is handled, or for `timeout_s`."""
        with self.lock:
            self.lock.wait(timeout_s)
