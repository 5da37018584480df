"""The messages between an agent and a worker of `dovetail.train`.

A *worker* is one process on one GPU; its number is never used twice in a job. A *generation* is a
set of workers in rank order and how they train. The workers of a generation meet at the address
that its first member announces (`Meeting`), which the controller passes on as `Meet`.

A switch is agreed among the workers at a step boundary, never commanded: a `Regroup` that a newer
one overtakes is ignored by all workers or entered by all. `wire.generation` is that protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

from dovetail.wire.codec import Codec

SOCKET, WORKER, TOKEN, FOLDER = (
    "DOVETAIL_SOCKET",
    "DOVETAIL_WORKER",
    "DOVETAIL_TOKEN",
    "DOVETAIL_FOLDER",
)
"""The environment of a worker: the agent's socket, "job/number", its secret, the job's folder."""
HOST, MEMORY = "DOVETAIL_HOST", "DOVETAIL_MEMORY_BYTES"
"""Where workers on other nodes reach this one (default: loopback); its bound of GPU memory."""
REPORT, STALL, CHECKPOINT = "DOVETAIL_REPORT_S", "DOVETAIL_STALL_S", "DOVETAIL_CHECKPOINT_S"
"""Seconds between two `Training` reports, of silence until `Lost`, between two checkpoints."""
STALL_S = 60.0
"""Members notice after so long that one of them hangs, unless STALL is set."""
PROFILE_STEPS, PROFILE_FILE = "DOVETAIL_PROFILE_STEPS", "DOVETAIL_PROFILE_FILE"
"""A dry run: so many iterations per sub-batch, then one JSON line into the file, and the end."""


@dataclass(frozen=True, slots=True)
class Regroup:
    """Train as this generation from the next step boundary at which all its members are ready.

    `members` are worker numbers in rank order. `steps` accumulation steps; `samples` of each
    member per iteration, empty for even; `batch_size` 0 for the job's own. `seat` is the interleave
    set and the phase in it of a job that takes turns with others on its GPUs (Muri). From then on
    each member holds at most `memory_bytes` of its GPU (0: no bound).
    """

    generation: int
    members: tuple[int, ...]
    steps: int = 1
    samples: tuple[int, ...] = ()
    batch_size: int = 0
    seat: tuple[int, int] | None = None
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Meet:
    """The members of a generation meet at this address."""

    generation: int
    address: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """A member of this generation is gone: leave its collectives at once and await a newer one.

    Every worker that gets this answers `Lost`, and so shows that it lives.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Save the state of the job at the next step boundary; with `leave`, all end after it."""

    leave: bool = False


@dataclass(frozen=True, slots=True)
class WorkerRefused:
    """The agent does not know this worker, or it was replaced: it ends at once and saves nothing.

    A connection that merely breaks means nothing: the worker trains on and calls again.
    """

    why: str


NUMBER_MAX = float(1 << 53)
"""What a worker counts or measures stays below this; a float is exact for whole numbers so far."""
MEASURED_MIN = 1e-9
"""What a worker measures is 0 or at least this, so that its inverse is a number too."""


class _Report:
    """A message of a worker. The controller computes with its numbers, so bounds are checked."""

    __slots__ = ()

    def __post_init__(self) -> None:
        kind: type = type(self)
        for name in _bounded(kind):
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if not _is_sound(number):
                    raise ValueError(f"{name} is out of bounds")


@lru_cache(maxsize=64)
def _bounded(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "loss")


def _is_sound(value: object) -> bool:
    if isinstance(value, float):
        return value == 0 or MEASURED_MIN <= value <= NUMBER_MAX
    return not isinstance(value, int) or -1 <= value <= NUMBER_MAX


@dataclass(frozen=True, slots=True)
class Hello(_Report):
    """The first message of a connection. `generation` is the one it trains in, -1 if none yet."""

    worker: str
    token: str
    pid: int
    generation: int = -1


@dataclass(frozen=True, slots=True)
class Meeting(_Report):
    """The first member of a generation hosts the meeting of its members at this address."""

    generation: int
    address: str


@dataclass(frozen=True, slots=True)
class Ready(_Report):
    """The worker is built and joined to the generation; it enters with the others."""

    generation: int
    prepared_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Entered(_Report):
    """The worker trains in the generation, having done `step` iterations and `samples` in all.

    `pause_s` is how long its training loop stood still for the switch.
    """

    generation: int
    step: int
    samples: int
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerLeft(_Report):
    """The worker ends: it is no member of the generation that the others entered, or all were to
    leave after a checkpoint, which is on disk.
    """

    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class Lost(_Report):
    """A collective of the generation failed, or a member does not answer.

    Every member that waits in vain reports it; the member that hangs is the one that does not.
    """

    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class Training(_Report):
    """How training goes, reported about once a second by the first member of a generation.

    `samples` done of `total_samples` (0: not known); `rate` is samples a second since the last
    report, and `iteration_s` the median iteration. `stage_s` are the seconds of an iteration spent
    on storage, CPU, GPU and network, empty where not measured.
    """

    generation: int
    step: int
    samples: int
    rate: float
    iteration_s: float
    total_samples: int = 0
    memory_bytes: int = 0
    stage_s: tuple[float, ...] = ()
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Saved(_Report):
    """The state after `step` iterations is on disk."""

    step: int
    samples: int


@dataclass(frozen=True, slots=True)
class Finished(_Report):
    """Training is complete; the worker ends. Every member reports it."""

    step: int
    samples: int


ToWorker = Regroup | Meet | Abandon | Checkpoint | WorkerRefused
FromWorker = Hello | Meeting | Ready | Entered | WorkerLeft | Lost | Training | Saved | Finished

TO_WORKER: Codec[ToWorker] = Codec(
    {
        "Regroup": Regroup,
        "Meet": Meet,
        "Abandon": Abandon,
        "Checkpoint": Checkpoint,
        "Refused": WorkerRefused,
    }
)
FROM_WORKER: Codec[FromWorker] = Codec(
    {
        "Hello": Hello,
        "Meeting": Meeting,
        "Ready": Ready,
        "Entered": Entered,
        "Left": WorkerLeft,
        "Lost": Lost,
        "Training": Training,
        "Saved": Saved,
        "Finished": Finished,
    }
)
