"""The states of a job, and the table of transitions between them.

States are Slurm's. `LiveJobs.move` is the only caller of `after`.
"""

from __future__ import annotations

from enum import StrEnum

from dovetail.core.errors import DovetailError


class State(StrEnum):
    """The states of a job, in Slurm's words."""

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
"""A job in one of these is over for good, unless its owner requeues it."""


class Transition(StrEnum):
    """What happens to a job and changes its state."""

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


ENDINGS: dict[Transition, State] = {
    Transition.FINISHED: State.COMPLETED,
    Transition.FAILED: State.FAILED,
    Transition.CANCELLED: State.CANCELLED,
    Transition.TIMED_OUT: State.TIMEOUT,
    Transition.NODE_FAILED: State.NODE_FAIL,
    Transition.OUT_OF_MEMORY: State.OUT_OF_MEMORY,
    Transition.DEADLINE: State.DEADLINE,
}
"""The transitions that end a job, and the state it has once its last worker is gone."""

ALIVE = (State.PENDING, State.CONFIGURING, State.RUNNING)
"""The states of a job that can still end."""

_TABLE: dict[tuple[State, Transition], State] = {
    (State.PENDING, Transition.PLACED): State.CONFIGURING,
    (State.CONFIGURING, Transition.STARTED): State.RUNNING,
    (State.CONFIGURING, Transition.STOPPED): State.PENDING,
    (State.RUNNING, Transition.STOPPED): State.PENDING,
    (State.CONFIGURING, Transition.REQUEUED): State.PENDING,
    (State.RUNNING, Transition.REQUEUED): State.PENDING,
    **{(state, step): State.COMPLETING for state in ALIVE for step in ENDINGS},
    **{(state, Transition.REQUEUED): State.PENDING for state in TERMINAL},
}
"""All legal transitions but one: `VACATED` leads from COMPLETING to the job's own ending."""


class IllegalTransition(DovetailError):
    """A job cannot make this transition in its state: a bug in Dovetail, not of the user."""


def after(state: State, step: Transition, ending: State | None = None) -> State:
    """Returns the state that follows. Raises IllegalTransition.

    A job that ends is COMPLETING until its last worker is gone (`VACATED`); then comes `ending`.
    """
    if state is State.COMPLETING and step is Transition.VACATED and ending in TERMINAL:
        assert ending is not None
        return ending
    follows = _TABLE.get((state, step))
    if follows is None:
        raise IllegalTransition(f"a job that is {state} cannot be {step}")
    return follows
