"""What an agent needs of whatever runs workers: start, signal, tell, and learn of ends.

The launcher decides as whom a worker runs and in what surroundings. Ours runs it as the one
trusted user who brought the cluster up; another identity, a container or a prolog is another
launcher, and no agent knows the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dovetail.wire.agent import StartWorker
from dovetail.wire.worker import FromWorker, ToWorker


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker is gone: exit code, or -N after signal N; `why` if that needs a word."""

    job: int
    worker: int
    exit_code: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A worker that an earlier agent of this node started, alive or with its end still to tell.

    `said` is what it said then and a controller may still have to hear.
    """

    order: StartWorker
    token: str
    started_s: float
    exit: Exit | None = None
    said: tuple[FromWorker, ...] = field(default=())


NOT_NOW, NEVER_RUNS = 125, (126, 127)
"""Exit codes with a `why`, of workers that were never executed: another try may help, or cannot."""

NEVER_STARTED = "never started"
"""The `why` of a worker that was to end before its agent had heard of it."""


def was_executed(exit_code: int, why: str) -> bool:
    """Tells whether the program of a worker had begun before the worker ended."""
    return not why or (why != NEVER_STARTED and exit_code not in (NOT_NOW, *NEVER_RUNS))


class LaunchError(Exception):
    """Says why a worker could not be started; `exit_code` is what a shell would have said."""

    def __init__(self, why: str, exit_code: int = NEVER_RUNS[0]) -> None:
        super().__init__(why)
        self.exit_code = exit_code


class NoRoom(Exception):
    """The disk is full: nothing was started, and the same worker can be started later."""


class StartDeferred(Exception):
    """Says what a worker must wait for: nothing was started, and the agent tries again soon."""


class Launcher(Protocol):
    """Runs the workers of one node. A worker is known by (job, number)."""

    def found(self) -> Sequence[Found]:
        """Returns the workers of earlier agents of this node; asked once, at the beginning."""
        ...

    def start(self, order: StartWorker, token: str, now: float) -> None:
        """Starts a worker. Raises LaunchError, StartDeferred, and NoRoom on a full disk."""
        ...

    def signal(self, job: int, worker: int, number: int) -> None:
        """Sends a signal to a worker and all its children; does nothing if it is gone."""
        ...

    def limit(self, order: StartWorker) -> None:
        """Puts a running worker under the share and the memory of a newer order, if it can."""
        ...

    def tell(self, job: int, worker: int, message: ToWorker) -> None:
        """Passes a message to a worker, if it listens; else the message is lost."""
        ...

    def keep(self, job: int, worker: int, message: FromWorker) -> None:
        """Keeps what a worker said for a later agent of this node to find."""
        ...

    def poll(self) -> Sequence[Exit]:
        """Returns the ends that were not returned before."""
        ...

    def forget(self, job: int, worker: int) -> None:
        """Drops all that is kept of a worker that has ended."""
        ...
