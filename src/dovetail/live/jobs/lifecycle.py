"""The life of a job as a table: which state may follow which, and upon what.

States are Slurm's. Nothing here knows time, workers or files; whoever moves a job asks `after`.
"""

from __future__ import annotations

from enum import StrEnum

from dovetail.core.errors import DovetailError


class State(StrEnum):
    """Where a job is in its life, in Slurm's words."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DEADLINE = "DEADLINE"


PENDING = State.PENDING
TERMINAL = frozenset(
    {
        State.COMPLETED,
        State.FAILED,
        State.CANCELLED,
        State.TIMEOUT,
        State.NODE_FAIL,
        State.OUT_OF_MEMORY,
        State.DEADLINE,
    }
)
"""A job in one of these is over for good (a requeue makes it pending by its owner's will)."""


class Step(StrEnum):
    """What happens to a job."""

    PLACED = "placed"
    STARTED = "started"
    STOPPED = "stopped"
    VACATED = "vacated"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    NODE_FAILED = "node failed"
    OUT_OF_MEMORY = "out of memory"
    DEADLINE = "deadline"
    REQUEUED = "requeued"


ENDINGS: dict[Step, State] = {
    Step.FINISHED: State.COMPLETED,
    Step.FAILED: State.FAILED,
    Step.CANCELLED: State.CANCELLED,
    Step.TIMED_OUT: State.TIMEOUT,
    Step.NODE_FAILED: State.NODE_FAIL,
    Step.OUT_OF_MEMORY: State.OUT_OF_MEMORY,
    Step.DEADLINE: State.DEADLINE,
}
"""The steps that end a job, and the state it has once its last worker is gone."""

_ALIVE = (State.PENDING, State.CONFIGURING, State.RUNNING)

_TABLE: dict[tuple[State, Step], State] = {
    (State.PENDING, Step.PLACED): State.CONFIGURING,
    (State.CONFIGURING, Step.STARTED): State.RUNNING,
    (State.CONFIGURING, Step.STOPPED): State.PENDING,
    (State.RUNNING, Step.STOPPED): State.PENDING,
    (State.CONFIGURING, Step.REQUEUED): State.PENDING,
    (State.RUNNING, Step.REQUEUED): State.PENDING,
    **{(state, step): State.COMPLETING for state in _ALIVE for step in ENDINGS},
    **{(state, Step.REQUEUED): State.PENDING for state in TERMINAL},
}
"""What is not here cannot happen. `VACATED` leads from COMPLETING to the job's own ending."""


class IllegalStep(DovetailError):
    """Says that a job cannot do this in its state: a bug of ours, never of the user."""


def after(state: State, step: Step, ending: State | None = None) -> State:
    """Returns the state that follows. Raises IllegalStep.

    A job that ends is COMPLETING until its last worker is gone (`VACATED`); then comes `ending`.
    """
    if state is State.COMPLETING and step is Step.VACATED and ending in TERMINAL:
        assert ending is not None
        return ending
    follows = _TABLE.get((state, step))
    if follows is None:
        raise IllegalStep(f"a job that is {state} cannot be {step}")
    return follows
