"""The workers of one job: what is wanted, what is told them, and what is known of each."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.live.jobs.record import GangMember
from dovetail.wire.agent import looser_bound
from dovetail.wire.worker import Training

NEVER = float("inf")
LONG_AGO = float("-inf")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How a generation trains: `wire.worker.Regroup` without its number and members."""

    steps: int = 1
    samples: tuple[int, ...] = ()
    batch_size: int = 0
    seat: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    """What the plan wants of a job: a member for each GPU in rank order, and how they train.

    A worker with several GPUs is the member of each of them.

    `shares` are the parts of their GPUs, empty for whole; `memory_bytes` bounds each (0: no bound).
    """

    members: tuple[GangMember, ...]
    manner: WorkerConfig = WorkerConfig()
    shares: tuple[float, ...] = ()
    memory_bytes: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """Returns the numbers of the workers in rank order."""
        return tuple(dict.fromkeys(m.worker for m in self.members))

    def seat(self, number: int) -> GangMember:
        """Returns where a worker runs: the first of its GPUs."""
        return next(m for m in self.members if m.worker == number)

    def gpus(self, number: int) -> tuple[int, ...]:
        """Returns the GPUs of a worker that its process can reach: those of the node it is on."""
        node = self.seat(number).node
        return tuple(m.gpu for m in self.members if m.worker == number and m.node == node)

    def share(self, number: int) -> float:
        """Returns the part of each of its GPUs that a worker may use."""
        if not self.shares:
            return 1.0
        both = zip(self.members, self.shares, strict=False)
        return min(share for member, share in both if member.worker == number)


@dataclass(frozen=True, slots=True)
class Target:
    """The generation that the workers are told to form."""

    generation: int
    members: tuple[int, ...]
    manner: WorkerConfig


@dataclass(slots=True)
class Worker:
    """What is known of one worker, on one GPU or on several `gpus` of a node.

    It is `alive` once it is known to have been started.

    `ready` and `entered` are generations, `lost` the one whose collectives it lost. It was started,
    or found, at `since_s`, and first said a word at `spoke_s`: a program may load for long before.
    It is asked to leave (save and end) at `leave_s` and told to end at
    `end_s` with `grace_s`. The rest is when it was last told what.

    While its agent must wait before it can start it, that is why it is `deferred`.

    Its limits are those of the generation `limited`. Until its agent says that it goes by them
    (`obeyed`) it may hold as much memory as it `kept` from before.
    """

    worker: int
    node: int
    gpu: int
    share: float = 1.0
    memory_bytes: int = 0
    kept: int = 0
    limited: int = -1
    obeyed: int = -1
    alive: bool = False
    ready: int = -1
    entered: int = -1
    lost: int = -1
    left: bool = False
    since_s: float = LONG_AGO
    spoke_s: float = NEVER
    leave_s: float = NEVER
    end_s: float = NEVER
    grace_s: float = 0.0
    why: str = ""
    deferred: str = ""
    trained: Training | None = None
    missing_s: float = NEVER
    told: int = -1
    told_s: float = LONG_AGO
    met: int = -1
    met_s: float = LONG_AGO
    start_told_s: float = LONG_AGO
    share_told: float = 1.0
    memory_told: int = 0
    leave_told_s: float = LONG_AGO
    abandon_told_s: float = LONG_AGO
    abandoned: int = -1
    end_told_s: float = LONG_AGO
    gpus: tuple[int, ...] = ()

    @property
    def all_gpus(self) -> tuple[int, ...]:
        """Returns every GPU of its node that it is placed on."""
        return self.gpus or (self.gpu,)

    def end_by(self, end_s: float, grace_s: float, why: str = "") -> None:
        """Lets it be ended at a time, unless that is due earlier already."""
        self.grace_s = min(self.grace_s, grace_s) if self.end_s < NEVER else grace_s
        self.end_s = min(self.end_s, end_s)
        self.why = self.why or why

    def take_limits(self, memory_bytes: int, generation: int) -> None:
        """Takes limits that are told under a generation, if they are not what it was told."""
        if not (self.alive or self.start_told_s > LONG_AGO):
            self.memory_bytes = memory_bytes
        elif memory_bytes != self.memory_bytes or self.share != self.share_told:
            self.kept = self.loosest
            self.memory_bytes, self.limited = memory_bytes, generation

    def speak(self, now: float) -> None:
        """Takes note that it says something."""
        self.spoke_s = min(self.spoke_s, now)

    def loads_until_s(self, start_s: float) -> float:
        """Returns until when it may be silent because its program has not come to its job yet."""
        return self.since_s + start_s if self.alive and self.spoke_s == NEVER else LONG_AGO

    @property
    def loosest(self) -> int:
        """Returns the most it may hold of its GPU, for all that is known (0: no bound)."""
        bound = self.memory_bytes
        return bound if self.obeyed >= self.limited else looser_bound(self.kept, bound)

    @property
    def stays(self) -> bool:
        """Returns whether nobody wants it to end."""
        return self.end_s == NEVER and self.leave_s == NEVER and not self.left
