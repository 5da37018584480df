"""What an agent needs of a launcher: start, signal and notify workers, and report their ends.

The launcher decides under which user a worker runs and in which environment. Ours runs it as the
one trusted user who started the cluster; another identity, a container or a prolog is another
launcher, and no agent knows the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dovetail.wire.agent import StartWorker
from dovetail.wire.worker import FromWorker, ToWorker


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """The end of a worker: exit code, or -N after signal N; `why` if that needs an explanation."""

    job: int
    worker: int
    exit_code: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class AdoptedWorker:
    """A worker that an earlier agent of this node started, alive or with an unreported end.

    `said` are its stored messages, which a controller may not have received.
    """

    order: StartWorker
    token: str
    started_s: float
    exit: WorkerExit | None = None
    said: tuple[FromWorker, ...] = field(default=())


NOT_NOW, NEVER_RUNS = 125, (126, 127)
"""Exit codes, with a `why`, of workers that were never executed: a retry may help, or cannot."""

NEVER_STARTED = "never started"
"""The `why` of a worker that was to end before its agent had heard of it."""
LOST_BY_NODE = "its agent does not know it any more"
"""The `why` of a worker that the controller knows to have run, and its agent does not."""
LEFT = "it left by an order that was withdrawn"
"""The `why` of a worker that ended well before its job did, because it was told to leave."""

BY_NODE = "its node failed it"
"""Begins the `why` of a worker that its node did not let start: no retry of its job counts."""


def was_executed(exit_code: int, why: str) -> bool:
    """True if the program of a worker had begun before the worker ended."""
    return not why or (why != NEVER_STARTED and exit_code not in (NOT_NOW, *NEVER_RUNS))


class LaunchError(Exception):
    """Why a worker could not be started; `exit_code` is what a shell would return."""

    def __init__(self, why: str, exit_code: int = NEVER_RUNS[0]) -> None:
        super().__init__(why)
        self.exit_code = exit_code


class DiskFull(Exception):
    """The disk is full: nothing was started, and the same worker can be started later."""


class StartDeferred(Exception):
    """What a worker must wait for: nothing was started, and the agent retries soon."""


class Launcher(Protocol):
    """Runs the workers of one node. A worker is known by (job, number)."""

    def adopt(self) -> Sequence[AdoptedWorker]:
        """Returns the workers of earlier agents of this node; called once, at the start."""
        ...

    def start(self, order: StartWorker, token: str, now: float) -> None:
        """Starts a worker. Raises LaunchError, StartDeferred, and DiskFull on a full disk."""
        ...

    def signal(self, job: int, worker: int, number: int) -> None:
        """Sends a signal to a worker and all its children; does nothing if it is gone."""
        ...

    def limit(self, order: StartWorker) -> None:
        """Applies the share and the memory bound of a newer order to a running worker."""
        ...

    def send(self, job: int, worker: int, message: ToWorker) -> None:
        """Sends a message to a worker if it is connected; otherwise the message is lost."""
        ...

    def store(self, job: int, worker: int, message: FromWorker) -> None:
        """Stores a message of a worker for a later agent of this node."""
        ...

    def poll(self) -> Sequence[WorkerExit]:
        """Returns the ends that were not returned before."""
        ...

    def forget(self, job: int, worker: int) -> None:
        """Deletes all that is stored of a worker that has ended."""
        ...
