"""What the agent of a node knows of one of its workers: orders, messages, and how it is to end."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.core.units import NEVER_S
from dovetail.live.node.launcher import LEFT, WorkerExit
from dovetail.wire.agent import StartWorker
from dovetail.wire.worker import Checkpoint, Entered, FromWorker, Saved, ToWorker, WorkerLeft


@dataclass(slots=True)
class AgentWorker:
    """One worker. `last_to` and `last_from` are the last message of each class, to it and from it.

    It runs under the limits of generation `limited` and has at most `memory_bytes` (0: no bound).
    `may_know` is True once it may have heard of a generation before that of its order.
    """

    order: StartWorker
    token: str
    started_s: float
    listens: bool = False
    last_to: dict[type, ToWorker] = field(default_factory=dict)
    last_from: dict[type, FromWorker] = field(default_factory=dict)
    entered: int = -1
    end: WorkerExit | None = None
    asked: bool = False
    limited: int = -1
    memory_bytes: int = 0
    may_know: bool = False
    why: str = ""
    kill_s: float = NEVER_S
    repeat_s: float = NEVER_S

    @property
    def alive(self) -> bool:
        """Returns whether its end is not known."""
        return self.end is None

    @property
    def why_ended(self) -> str:
        """Returns why it ended, "" if it explains itself.

        Said with the end: the report that it left may be lost, and 0 would mean that its job is
        done.
        """
        if self.end is None:
            return ""
        left = self.end.exit_code == 0 and WorkerLeft in self.last_from
        return self.end.why or self.why or (LEFT if left else "")

    def hear(self, message: FromWorker) -> None:
        """Takes a message of the worker."""
        self.last_from[type(message)] = message
        if isinstance(message, Entered):
            self.entered = max(self.entered, message.generation)
        elif isinstance(message, Saved):
            self.last_to.pop(Checkpoint, None)
