"""One worker among the generations of its job: a pure state machine.

Events go in, instructions come out. It does no input or output, and knows no clock and no threads:
the training library drives it around process groups, emulated workers around a clock, and the
puppets of the tests around virtual time.

    ordered (Prepare) -> joined (Ready) -> entering -> training (Entered) -> ...
                                              |            |
                                              +-> broken (Lost) -> the oldest one that it joined
                                                           |
                                                           +-> left (Left)

A switch is agreed among the workers, never commanded. At each step boundary every worker proposes
a generation (`propose`), and all enter it together if all propose the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dovetail.wire.worker import (
    Abandon,
    Checkpoint,
    Entered,
    Finished,
    FromWorker,
    Lost,
    Meet,
    Ready,
    Regroup,
    WorkerLeft,
)

# What happens to a worker beside the messages of its agent. `Ready` (it is built and connected) and
# `Finished` are events too, and the messages that report them.


@dataclass(frozen=True, slots=True)
class JoinFailed:
    """The worker is not connected to a generation, and why; "" if its members called it off."""

    generation: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Entering:
    """All members agreed on a generation; the worker finds out who has the newest state."""

    generation: int


@dataclass(frozen=True, slots=True)
class Trains:
    """The worker trains in the generation that it entered."""

    step: int
    samples: int
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Broke:
    """A collective of the generation that it entered failed: it cannot train on there."""

    why: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """The worker waits in vain for a member; it goes on waiting."""

    why: str


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """The state that was asked for is on disk; `leaves` if all tried to leave after it."""

    leaves: bool


@dataclass(frozen=True, slots=True)
class Leaves:
    """The worker ends after so many steps: the others go on without it, or all were to leave."""

    step: int


Event = (
    Regroup
    | Meet
    | Abandon
    | Checkpoint
    | Ready
    | JoinFailed
    | Entering
    | Trains
    | Broke
    | Stalled
    | CheckpointDone
    | Leaves
    | Finished
)

# What the worker is to do.


@dataclass(frozen=True, slots=True)
class Prepare:
    """Build the worker for a generation; the first member hosts the meeting."""

    regroup: Regroup
    hosts: bool


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the agent."""

    message: FromWorker


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the collectives of a generation at once: a member of it is gone."""

    generation: int


@dataclass(frozen=True, slots=True)
class ShowLife:
    """Send `lost`, unless the training loop hangs: no answer means that the worker hangs."""

    lost: Lost


Instruction = Prepare | Send | Stop | ShowLife


class ProtocolError(Exception):
    """An event that cannot happen in this state."""


@dataclass(slots=True)
class WorkerGenerations:
    """The generations of worker `number`: which it was ordered into, joined, entered and lost.

    `ordered` is the newest order, also one without this worker; `entered` is the generation that it
    is in, -1 before the first; `broken` is why that one cannot go on, "" while it can. `save` and
    `leave` are what the agent asks for at the next step boundary.
    """

    number: int
    ordered: Regroup | None = None
    entered: int = -1
    is_entering: bool = False
    broken: str = ""
    save: bool = False
    leave: bool = False
    has_left: bool = False
    was_member: bool = False
    _open: dict[int, Regroup] = field(default_factory=dict)
    _joined: set[int] = field(default_factory=set)
    _abandoned: set[int] = field(default_factory=set)
    _addresses: dict[int, str] = field(default_factory=dict)
    _stalled: int = -1

    # Events.

    def handle(self, event: Event) -> list[Instruction]:
        """Takes an event; returns what to do, in order. Raises ProtocolError."""
        if self.has_left:
            # It has reported that it leaves or is done; a later message would contradict that.
            return []
        match event:
            case Regroup():
                return self._regroup(event)
            case Meet():
                self._addresses[event.generation] = event.address
            case Abandon():
                return self._abandon(event.generation)
            case Checkpoint():
                self.save, self.leave = True, self.leave or event.leave
            case Ready():
                return self._join(event)
            case JoinFailed():
                return self._fail_to_join(event)
            case Entering():
                self._enter(event.generation)
            case Trains():
                self.is_entering = False
                return [Send(Entered(self.entered, event.step, event.samples, event.pause_s))]
            case Broke():
                return self._break(event.why)
            case Stalled():
                return self._stall(event.why)
            case CheckpointDone():
                self.save, self.leave = False, self.leave and not event.leaves
            case Leaves() | Finished():
                return self._end(event)
        return []

    def _end(self, event: Leaves | Finished) -> list[Instruction]:
        self.has_left = True
        if isinstance(event, Finished):
            return [Send(event)]
        return [Send(WorkerLeft(max(self.newest, self.entered), event.step))]

    def _regroup(self, order: Regroup) -> list[Instruction]:
        if order.generation <= self.newest:
            return []  # repeated or late
        self.ordered = order
        # A worker that is to leave is sent no newer generation: this one is wanted again.
        self.leave = False
        if self.number not in order.members:
            return []
        self.was_member = True
        self._open[order.generation] = order
        return [Prepare(order, self.hosts(order.generation))]

    def _abandon(self, generation: int) -> list[Instruction]:
        self._abandoned.add(generation)
        # Each Abandon is answered, repeated ones too: the answer may have been lost.
        answer = ShowLife(Lost(generation, self._why_lost(generation)))
        return [Stop(generation), answer] if generation == self.entered else [answer]

    def _why_lost(self, generation: int) -> str:
        return (self.broken if generation == self.entered else "") or "abandoned"

    def _join(self, event: Ready) -> list[Instruction]:
        if event.generation not in self._open:
            return []  # it was overtaken while it was built
        self._joined.add(event.generation)
        return [Send(event)]

    def _fail_to_join(self, event: JoinFailed) -> list[Instruction]:
        if self._open.pop(event.generation, None) is None or not event.why:
            return []
        return [Send(Lost(event.generation, event.why))]

    def _enter(self, generation: int) -> None:
        if not self.is_ready(generation) or generation <= self.entered:
            raise ProtocolError(f"worker {self.number} cannot enter generation {generation}")
        self.entered, self.is_entering, self.broken = generation, True, ""
        self._drop(below=generation + 1)

    def _break(self, why: str) -> list[Instruction]:
        self.broken = self.broken or why
        if self.is_entering and self.is_overtaken(self.entered):
            # The others turned to a newer order on the way in: no member is lost.
            return []
        return [Send(Lost(self.entered, why))]

    def _stall(self, why: str) -> list[Instruction]:
        if self._stalled >= self.entered:
            return []
        self._stalled = self.entered
        return [Send(Lost(self.entered, why))]

    # What follows from it.

    @property
    def newest(self) -> int:
        """Returns the newest generation that was ordered, -1 before the first order."""
        return -1 if self.ordered is None else self.ordered.generation

    def wants(self, generation: int) -> bool:
        """Returns whether a generation is the newest one ordered, and it is to enter it."""
        return generation == self.newest and generation in self.open_generations

    def propose(self, holders: Collection[int] | None = None) -> int:
        """Returns the generation it proposes for the next step boundary, and drops older ones.

        That is the newest one ordered if the worker has joined it, or is to leave for it; else the
        one it is in. One of the `holders`, the workers that have the whole state of the job, must
        be a member of it: they must not all leave before others have the state. All workers must
        pass the same ones.
        """
        newest = self.newest
        if newest <= self.entered or newest in self._abandoned:
            return self.entered
        # Members that joined different older generations would never agree on one of them.
        self._drop(below=newest)
        assert self.ordered is not None
        keeps_state = holders is None or any(h in self.ordered.members for h in holders)
        free = not self.is_member(newest) or self.is_ready(newest)
        return newest if keeps_state and free else self.entered

    def is_member(self, generation: int) -> bool:
        """Returns whether it is a member of the newest generation ordered, if that is this one."""
        order = self.ordered
        return order is not None and order.generation == generation and self.number in order.members

    def is_ready(self, generation: int) -> bool:
        """Returns whether it has joined a generation that it may still enter."""
        return generation in self._joined and generation in self._open

    def is_abandoned(self, generation: int) -> bool:
        """Returns whether it was ordered to abandon a generation."""
        return generation in self._abandoned

    @property
    def leaves_alone(self) -> bool:
        """Returns whether it is to leave, and the others of its generation are not."""
        return self.leave and self.is_abandoned(self.entered)

    def is_overtaken(self, generation: int) -> bool:
        """Returns whether a generation was abandoned or a newer one was ordered."""
        return generation in self._abandoned or generation < self.newest

    @property
    def open_generations(self) -> list[int]:
        """Returns the generations that it may still enter, the oldest first."""
        return [g for g in sorted(self._open) if g not in self._abandoned]

    @property
    def is_left_out(self) -> bool:
        """Returns whether it was a member once, and has no place in the newest generation.

        A new worker that was never a member awaits its turn.
        """
        newer = self.newest > self.entered and not self.is_member(self.newest)
        return self.was_member and newer

    def hosts(self, generation: int) -> bool:
        """Returns whether it is the first of several members of an open generation."""
        order = self._open.get(generation)
        return order is not None and len(order.members) > 1 and order.members[0] == self.number

    def knows_meeting(self, generation: int) -> bool:
        """Returns whether it can meet the members of an open generation, or is the only one."""
        order = self._open.get(generation)
        alone = order is not None and len(order.members) == 1
        return alone or self.hosts(generation) or generation in self._addresses

    def address_of(self, generation: int) -> str | None:
        """Returns where the members of a generation meet, if it was said."""
        return self._addresses.get(generation)

    @property
    def hosted(self) -> list[int]:
        """Returns the generations that members may still look for at the address of this worker.

        An agent that answers a new call must hear of them once more: the others wait for the
        address, and an earlier agent may have died with it.
        """
        return [g for g in self._open if g not in self._joined and self.hosts(g)]

    def _drop(self, *, below: int) -> None:
        for generation in [g for g in self._open if g < below]:
            del self._open[generation]


def agree(proposals: Collection[int]) -> int | None:
    """Returns the generation that all workers propose, None if they differ."""
    first, *others = proposals
    return first if all(other == first for other in others) else None
