"""What is wanted of the workers of a job, and what is known of each of them."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.live.jobs.record import GangMember
from dovetail.wire.agent import OnGpus, looser_bound
from dovetail.wire.worker import Regroup, Training


@dataclass(frozen=True, slots=True)
class Desired:
    """What the plan wants of a job: a member for each GPU in rank order, and how they train.

    A worker with several GPUs is the member of each of them. `steps`, `samples`, `batch_size` and
    `seat` as in `wire.worker.Regroup`. `shares` are the parts of their GPUs, empty for whole;
    `memory_bytes` bounds each (0: no bound).
    """

    members: tuple[GangMember, ...]
    steps: int = 1
    samples: tuple[int, ...] = ()
    batch_size: int = 0
    seat: tuple[int, int] | None = None
    shares: tuple[float, ...] = ()
    memory_bytes: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """Returns the numbers of the workers in rank order."""
        return tuple(dict.fromkeys(m.worker for m in self.members))

    def member(self, number: int) -> GangMember:
        """Returns where a worker runs: the first of its GPUs."""
        return next(m for m in self.members if m.worker == number)

    def gpus(self, number: int) -> tuple[int, ...]:
        """Returns the GPUs of a worker that its process can reach: those of the node it is on."""
        node = self.member(number).node
        return tuple(m.gpu for m in self.members if m.worker == number and m.node == node)

    def share(self, number: int) -> float:
        """Returns the part of each of its GPUs that a worker may use."""
        if not self.shares:
            return 1.0
        both = zip(self.members, self.shares, strict=False)
        return min(share for member, share in both if member.worker == number)

    def regroup(self, generation: int, members: tuple[int, ...]) -> Regroup:
        """Returns the order to train as a generation of some of the workers, still unbounded."""
        return Regroup(generation, members, self.steps, self.samples, self.batch_size, self.seat)


@dataclass(slots=True)
class Worker(OnGpus):
    """What is known of one worker, on one GPU or on several `gpus` of a node.

    It is `alive` once it is known to have been started; while its agent cannot start it yet,
    `deferred` says why. `ready` and `entered` are generations, `lost` the newest one whose
    collectives failed. It was started, or adopted, at `since_s` and sent its first message at
    `first_message_s`: a program may load for long before.

    It is asked to save and leave at `leave_s`, and ended at `end_s` with `grace_s`. Fields named
    `..._sent` and `..._sent_s` are what it was sent last, and when.

    Where checkpoints travel it has none that is newer than `saved_step`.

    Its limits are those of the generation `limits_generation`. Until its agent confirms them
    (`limits_confirmed`) it may hold as much memory as before (`memory_before`).
    """

    worker: int
    node: int
    gpu: int
    share: float = 1.0
    memory_bytes: int = 0
    memory_before: int = 0
    limits_generation: int = -1
    limits_confirmed: int = -1
    alive: bool = False
    ready: int = -1
    entered: int = -1
    lost: int = -1
    left: bool = False
    since_s: float = LONG_AGO_S
    first_message_s: float = NEVER_S
    leave_s: float = NEVER_S
    end_s: float = NEVER_S
    grace_s: float = 0.0
    why: str = ""
    deferred: str = ""
    trained: Training | None = None
    missing_s: float = NEVER_S
    regroup_sent: int = -1
    regroup_sent_s: float = LONG_AGO_S
    meet_sent: int = -1
    meet_sent_s: float = LONG_AGO_S
    start_sent_s: float = LONG_AGO_S
    share_sent: float = 1.0
    memory_sent: int = 0
    leave_sent_s: float = LONG_AGO_S
    abandon_sent_s: float = LONG_AGO_S
    abandon_sent: int = -1
    end_sent_s: float = LONG_AGO_S
    gpus: tuple[int, ...] = ()
    saved_step: int = -1

    def end_by(self, end_s: float, grace_s: float, why: str = "") -> None:
        """Schedules its end, unless an earlier one is scheduled already."""
        # The shorter grace and the earlier time win: an end is never put off by a later reason.
        self.grace_s = min(self.grace_s, grace_s) if self.end_s < NEVER_S else grace_s
        self.end_s = min(self.end_s, end_s)
        self.why = self.why or why

    def set_memory_limit(self, memory_bytes: int, generation: int) -> None:
        """Sets the limits of a generation, if they differ from those that it was sent."""
        if not (self.alive or self.start_sent_s > LONG_AGO_S):
            # Its start order has not been sent: there is nothing it could still hold from before.
            self.memory_bytes = memory_bytes
        elif memory_bytes != self.memory_bytes or self.share != self.share_sent:
            # Read before the new limit is set: until its agent confirms, the looser one counts.
            self.memory_before = self.memory_held_max
            self.memory_bytes, self.limits_generation = memory_bytes, generation

    def note_message(self, now: float) -> None:
        """Records that it sent a message."""
        self.first_message_s = min(self.first_message_s, now)

    def loading_until_s(self, start_s: float) -> float:
        """Returns until when it may be silent because its program is still loading."""
        loading = self.alive and self.first_message_s == NEVER_S
        return self.since_s + start_s if loading else LONG_AGO_S

    @property
    def memory_held_max(self) -> int:
        """Returns the most it may hold of its GPU, for all that is known (0: no bound)."""
        bound = self.memory_bytes
        if self.limits_confirmed >= self.limits_generation:
            return bound
        return looser_bound(self.memory_before, bound)

    @property
    def stays(self) -> bool:
        """Returns whether it is neither leaving nor to be ended."""
        return self.end_s == NEVER_S and self.leave_s == NEVER_S and not self.left
