"""Every fact of a run, in the past tense: the event log is a sequence of these.

The set is closed. `t` is in seconds; `job` is the index into the job table; the log writer
puts ids in its place. Orders to workers are derived from `Started` and `Stopped` by a world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dovetail.core.placement import Placement

START, RESUME, MOVE, RESIZE = "start", "resume", "move", "resize"
"""Why a job was placed: for the first time, again, elsewhere, on more or fewer GPUs."""
ADJUST, LIMIT = "adjust", "limit"
"""Or on the same GPUs in another manner (accumulation steps, samples, phase, named GPUs), or under
other limits of the share of each GPU it may use."""

HOW = (START, RESUME, MOVE, RESIZE, ADJUST, LIMIT)

PREEMPTED, RECLAIMED = "preempted", "reclaimed"
"""Why the policy stopped a job: for another one, or because its GPUs were lent and are due."""
BY_POLICY = (PREEMPTED, RECLAIMED)

NODE_DOWN = "node down"
"""Why a job stopped that the policy did not stop."""

RECOVERING, READY = "recovering", "ready"
"""States of a controller: it waits until it knows what runs on the nodes; it asks its policy."""


class Submitted(NamedTuple):
    """A job joined the queue; `length_s` is its forecast length.

    If that is the mean of a distribution, `distribution` has the numbers of it.
    """

    t: float
    job: int
    length_s: float
    distribution: tuple[float, ...] = ()


class Avoided(NamedTuple):
    """A job is kept off `nodes`, where it failed, until it is placed the next time."""

    t: float
    job: int
    nodes: tuple[int, ...]


class Started(NamedTuple):
    """A job was placed; it makes progress at `rate` from `from_s` on (a switch costs time).

    `preparing` of its GPUs do not work yet: they are prepared while it trains on the others.
    """

    t: float
    job: int
    how: str
    placement: Placement
    rate: float
    from_s: float
    preparing: int = 0


class Switched(NamedTuple):
    """GPUs made ready joined; the job makes progress at `rate` from `from_s` on.

    `preparing` of its GPUs are still being made ready.
    """

    t: float
    job: int
    rate: float
    from_s: float
    preparing: int = 0


class Shrunk(NamedTuple):
    """A job lost GPUs with a node and trains on with the others, at `rate` from `from_s` on."""

    t: float
    job: int
    placement: Placement
    rate: float
    from_s: float
    preparing: int = 0


class Retimed(NamedTuple):
    """A neighbour came or went, or training reached another phase: the job's rate changed."""

    t: float
    job: int
    rate: float


class Measured(NamedTuple):
    """A running job reported its progress so far, in solo seconds, and its rate from now on."""

    t: float
    job: int
    done_s: float
    rate: float


class Foreseen(NamedTuple):
    """A job that waits or runs was forecast anew, as when it is submitted."""

    t: float
    job: int
    length_s: float
    distribution: tuple[float, ...] = ()


class Stopped(NamedTuple):
    """A job lost its GPUs and waits again; `done_s` is its progress in solo seconds."""

    t: float
    job: int
    why: str
    done_s: float


class Withdrawn(NamedTuple):
    """A waiting job left the queue and is not over: held, or to be tried again later.

    It joins the queue again with another `Submitted`. For a policy it has ended.
    """

    t: float
    job: int


class Ended(NamedTuple):
    """A job is over; `how` is one of `core.trace.ENDS`."""

    t: float
    job: int
    how: str


class NodeChanged(NamedTuple):
    """A node went up, down or began to drain."""

    t: float
    node: int
    state: str


class GpusChanged(NamedTuple):
    """The GPUs that are not up from now on, as (node, GPU, `draining` or `down`); others are up.

    `staying` are the jobs that may finish on them. GPUs go by the names of the plan: one of the
    node's, not always the one that a user drained.
    """

    t: float
    gpus: tuple[tuple[int, int, str], ...]
    staying: tuple[int, ...] = ()


class Warned(NamedTuple):
    """The owner of a job was warned, with a line in its output."""

    t: float
    job: int
    why: str


class Woke(NamedTuple):
    """The policy asked to be called at this time."""

    t: float


class Learned(NamedTuple):
    """Measured speeds replaced believed ones, so the policy is asked again."""

    t: float


class ControllerChanged(NamedTuple):
    """A controller of a live cluster started or became ready.

    `recovering`: controller `epoch` started with `policy`, whose memory is empty but for what
    it keeps (`core.policy.kept_of`). It restored the jobs from their records and asks the policy
    nothing until each node sent its inventory or is down. `ready`: from now on it asks. A killed
    controller leaves no fact; the next one starts.
    """

    t: float
    epoch: int
    state: str
    policy: str = ""


class Reason(NamedTuple):
    """Why jobs wait, in Slurm's words: `job`, or all of a `shape`, or (both -1) all others."""

    code: str
    job: int = -1
    shape: int = -1
    behind: int = -1


class Refused(NamedTuple):
    """A decision did not stand, the plan stayed as it was; `why` in words.

    The policy raised, or took too long, or wanted what is not legal.
    """

    t: float
    why: str


class Explained(NamedTuple):
    """The reasons changed; these hold until the next `Explained`."""

    t: float
    reasons: tuple[Reason, ...]


Fact = (
    Submitted
    | Avoided
    | Started
    | Switched
    | Shrunk
    | Retimed
    | Measured
    | Foreseen
    | Stopped
    | Withdrawn
    | Ended
    | NodeChanged
    | GpusChanged
    | Warned
    | Woke
    | Learned
    | ControllerChanged
    | Refused
    | Explained
)


KINDS: Mapping[str, type[Fact]] = {
    "submitted": Submitted,
    "avoided": Avoided,
    "started": Started,
    "switched": Switched,
    "shrunk": Shrunk,
    "retimed": Retimed,
    "measured": Measured,
    "foreseen": Foreseen,
    "stopped": Stopped,
    "withdrawn": Withdrawn,
    "ended": Ended,
    "node": NodeChanged,
    "gpus": GpusChanged,
    "warned": Warned,
    "woke": Woke,
    "learned": Learned,
    "controller": ControllerChanged,
    "refused": Refused,
    "explained": Explained,
}
"""What the event log calls each fact."""


class Recorder(Protocol):
    """Takes facts in order of time: the log writer, a fold of metrics, or several of them."""

    def record(self, facts: Sequence[Fact]) -> None:
        """Takes the facts of one instant."""
