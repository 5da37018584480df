"""The membership of this worker: how it joins generations, switches, survives and leaves.

`wire.generation` decides which generation the worker proposes and may enter; this drives it around
process groups and the state of the job. A switch is agreed, never commanded. In each iteration
every member announces the generation that it proposes, and all enter it together at that step
boundary if all announce the same. A member that has heard of a newer order announces that one, and
no member switches until all have caught up. No member leaves alone.

When a generation breaks, its members keep the state of their last complete step and enter the
oldest generation that they have joined. Entering starts with comparing steps: members that are
behind (by one step at most) receive the state from those ahead, as joiners do.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch

from dovetail.train.data.samples import BatchSplit
from dovetail.train.membership.agent_connection import AgentChannel
from dovetail.train.membership.mailbox import Mailbox
from dovetail.train.membership.rendezvous import GroupBuilder, RendezvousServer
from dovetail.train.state.checkpoint import TrainingPosition
from dovetail.train.state.state import TrainingState
from dovetail.train.sync.process_group import (
    COMPLETED,
    GroupBroken,
    Operation,
    WaitPolicy,
    WorkerGroup,
    agreed,
)
from dovetail.train.sync.state_transfer import NoTransfer, StateReceiver, StateSender, StateTransfer
from dovetail.wire.generation import (
    Broke,
    Entering,
    Event,
    Leaves,
    Send,
    ShowLife,
    Stalled,
    Trains,
)
from dovetail.wire.worker import Finished, FromWorker, Meeting, Regroup

WAIT_S = 0.1
ITERATIONS_OF_PATIENCE = 10
"""A training loop that shows no life for longer, and for longer than the stall, hangs."""
SAVE, LEAVE, LEARN, AGAIN = 2, 3, 4, 5
"""Places in the announcement, after the generation and its square."""


class LeavingJob(Exception):
    """This worker has no place in the newest generation, and ends."""


class StateLost(Exception):
    """The workers that had the state are gone and there is no checkpoint to go on from."""


@dataclass(frozen=True, slots=True)
class IterationOutcome:
    """What all members agreed on for the end of an iteration.

    `again`: the transfer of the state begins anew, since the state was changed meanwhile.
    """

    switch: bool
    save: bool
    leave: bool
    learning: bool
    again: bool = False


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a worker needs to meet others, for as long as its process lives."""

    me: int
    agent: AgentChannel
    mailbox: Mailbox
    server: RendezvousServer
    address: str
    stall_s: float


class Membership:
    """This worker among the others. Its public methods are for the training loop alone."""

    sends_while_training = True
    """Whether joiners receive the state while others train; else all wait (for benchmarks)."""

    def __init__(
        self,
        context: WorkerContext,
        parts: TrainingState,
        progress: TrainingPosition,
        *,
        batch_size: int,
        script: int,
        begin: Callable[[], TrainingPosition],
        enters: Callable[[], None],
    ) -> None:
        """`begin` loads the first state of all: that of a checkpoint, or of the script.

        `enters` is called before this worker reports that it trains in a generation. `script` is a
        number for data, batches and length, the same on all workers that can train together.
        """
        self._context, self._parts, self._progress = context, parts, progress
        self._batch_size, self._script, self._begin = batch_size, script, begin
        self._enters = enters
        self._device = next(parts.model.parameters()).device
        self._builders: dict[int, GroupBuilder] = {}
        self._lock = threading.Lock()
        self._trained = False
        self._tainted = False
        self._whole = True
        self._announced = -1
        self._members: tuple[int, ...] = (context.me,)
        self._iteration_s, self._began_s = 0.0, time.monotonic()
        self._announcement = torch.zeros(6, dtype=torch.float64)
        self._agreeing: Operation = COMPLETED
        self._transfer: StateTransfer = NoTransfer()
        self.group = WorkerGroup(-1, 0, 1)
        self.manner = BatchSplit(batch_size)
        self.learning: tuple[bool, ...] = (False,)
        self._alive_s = time.monotonic()
        context.mailbox.listen(prepare=self._prepare, stop=self._stop, show_life=self._show_life)

    @property
    def generation(self) -> int:
        """Returns the generation this worker trains in, -1 before the first."""
        return self._context.mailbox.entered

    @property
    def is_catching_up(self) -> bool:
        """Returns whether this worker does not have the whole state yet."""
        return self.learning[self.group.rank]

    @property
    def leads(self) -> bool:
        """Returns whether this worker reports and saves: it is the first with the whole state."""
        return self.group.rank == self.learning.index(False)

    def again(self) -> list[FromWorker]:
        """Returns what an agent must be sent once more that accepts a new connection."""
        return [Meeting(g, self._context.server.address()) for g in self._context.mailbox.hosted]

    def _handle(self, event: Event) -> None:
        """Passes an event to the protocol, and sends what follows."""
        for instruction in self._context.mailbox.handle(event):
            if isinstance(instruction, Send):
                self._context.agent.send(instruction.message)

    def _prepare(self, regroup: Regroup) -> None:
        context = self._context
        builder = GroupBuilder(
            regroup,
            context.me,
            mailbox=context.mailbox,
            agent=context.agent,
            server=context.server,
            own_address=context.address,
            device=self._device,
        )
        with self._lock:
            self._builders[regroup.generation] = builder
        builder.start()

    def _stop(self, generation: int) -> None:
        group = self.group
        if group.generation == generation:
            group.abandon()

    def _show_life(self, answer: ShowLife) -> None:
        """Answers an Abandon for the training loop, if that is known to be alive."""
        # The loop itself may be in the user's code for long, and cannot answer. A loop that hangs
        # must not be answered for: the controller would never find it.
        silent_s = time.monotonic() - self._alive_s
        if silent_s < self._patience_s():
            self._context.agent.send(answer.lost)

    def _patience_s(self) -> float:
        return max(self._context.stall_s, ITERATIONS_OF_PATIENCE * self._iteration_s)

    def mark_alive(self) -> None:
        """Records that the training loop is alive."""
        self._alive_s = time.monotonic()

    # An iteration: announce, train, agree.

    def announce(self, *, save: bool) -> None:
        """Announces which generation this worker proposes to enter after this iteration."""
        mailbox = self._context.mailbox
        now_s = time.monotonic()
        self._iteration_s, self._began_s = now_s - self._began_s, now_s
        self._alive_s = now_s
        # All members know who has the whole state, and so come to the same answer.
        has = [m for m, learns in zip(self._members, self.learning, strict=True) if not learns]
        g = mailbox.propose(has)
        self._drop_builders()
        self._announced = g
        again = isinstance(self._transfer, StateSender) and self._transfer.is_stale()
        flags = (save or mailbox.save, mailbox.leave, again or not self._transfer.complete, again)
        self._announcement = torch.tensor([g, g * g, *flags], dtype=torch.float64)
        self._transfer.begin()
        self._agreeing = self.group.sum_control(self._announcement)

    def agree(self) -> IterationOutcome:
        """Returns what all members agreed on. Raises Broken."""
        self._agreeing.wait()
        # The sums over all members. Those of a number and of its square show together whether all
        # announced the same one, so that one small reduction carries everything.
        sums = self._announcement.tolist()
        switch = self._announced != self.generation and agreed(sums[:2], self.group.size)
        return IterationOutcome(switch, *(sums[flag] > 0 for flag in (SAVE, LEAVE, LEARN, AGAIN)))

    def finish_transfer(self) -> None:
        """Waits until the part of the state that is under way to joiners is sent. Raises Broken."""
        self._transfer.end()

    def record_step(self, verdict: IterationOutcome) -> None:
        """Records a complete step."""
        self._trained = True
        if isinstance(self._transfer, StateSender):
            self._transfer.stepped()
        if isinstance(self._transfer, StateReceiver) and self._transfer.complete:
            self._progress.known, self._tainted = True, False
        if any(self.learning) and not verdict.learning:
            # All members heard that the transfer is complete, and end it in the same iteration.
            self._transfer = NoTransfer()
            self.learning = (False,) * self.group.size

    def mark_whole(self) -> None:
        """Records that all members have the same state, also the parts that no step changes."""
        self._whole = True

    def restart_transfer(self) -> None:
        """Begins the transfer of the state anew. Raises Broken."""
        if self.is_catching_up:
            self._progress.known = False
        self._start_transfer(again=True)

    def agree_all_well(self, well: bool) -> bool:
        """Returns whether all members are well. Raises Broken."""
        count = torch.tensor([float(well)], dtype=torch.float64)
        # One member may take long to write a checkpoint: that is no stall.
        self.group.have(self._patience(math.inf))
        self.group.sum_control(count).wait()
        self.group.have(self._patience(self._patience_s()))
        return int(count.item()) == self.group.size

    # Between iterations: entering, breaking, leaving.

    def switch(self, since_s: float) -> None:
        """Enters the generation that all announced. Raises LeavingJob if that lacks this one."""
        if not self._context.mailbox.is_ready(self._announced):
            # It announced a generation that it has not joined: it is to leave for it.
            raise LeavingJob
        if not self._try_to_enter(self._announced, since_s):
            self.enter_next(since_s)

    def give_up_generation(self, broken: GroupBroken) -> None:
        """Gives up the generation; the state stays that of the last complete step."""
        if not self._context.mailbox.broken:
            self._handle(Broke(str(broken) or "broken"))
        with suppress(GroupBroken):  # the transfer was part of what broke
            self._transfer.end()
        self._transfer, self._agreeing = NoTransfer(), COMPLETED
        self.group.discard(broken=True)  # so that the others notice at once

    def enter_next(self, since_s: float) -> None:
        """Enters the oldest generation that this worker has joined; waits until it has joined one.

        Raises LeavingJob when it has no place in the newest generation and can still enter no
        older one.
        """
        mailbox = self._context.mailbox
        while True:
            self.mark_alive()
            open_ones = mailbox.open_generations
            ready = [g for g in open_ones if mailbox.is_ready(g)]
            if ready:
                # The oldest first: others may be in it, or wait for this one there.
                if self._try_to_enter(ready[0], since_s):
                    return
            elif not open_ones and mailbox.is_left_out:
                raise LeavingJob
            else:
                mailbox.wait(WAIT_S)

    def leave(self) -> None:
        """Reports that this worker ends."""
        self._handle(Leaves(self._progress.step))

    def finish(self) -> None:
        """Reports that the job is done."""
        self._handle(Finished(self._progress.step, self._progress.samples))

    def close(self) -> None:
        """Closes all connections."""
        self._drop_builders(all_of_them=True)
        self.group.discard()

    def _try_to_enter(self, generation: int, since_s: float) -> bool:
        try:
            self._enter(generation, since_s)
        except GroupBroken as broken:
            self.give_up_generation(broken)
            return False
        return True

    def _enter(self, generation: int, since_s: float) -> None:
        self._handle(Entering(generation))
        with self._lock:
            builder = self._builders.pop(generation)
        old, self.group = self.group, builder.take()
        if self._context.mailbox.is_abandoned(generation):
            # The order to stop may have come before there was a group to stop.
            self.group.abandon()
        self._drop_builders()
        old.discard()
        self.group.have(self._patience(self._patience_s()))
        order = builder.regroup
        self._members = order.members
        self.manner = BatchSplit(
            order.batch_size or self._batch_size,
            len(order.members),
            order.steps,
            order.samples,
            self._parts.at_least,
        )
        self._share_state()
        p = self._progress
        self._enters()
        pause_s = time.monotonic() - since_s if self._trained else 0.0
        self._handle(Trains(p.step, p.samples, pause_s))

    def _share_state(self) -> None:
        """Finds the members with the newest state, and starts its transfer to the others."""
        p = self._progress
        rows = self._compare_states(p.step if p.known else 0, self._trained)
        if not any(known for known, *_ in rows):
            # No member has the state: the first one loads it, and the others receive it from there.
            self._load_first_state()
            rows = self._compare_states(p.step, False)
        # The newest state wins. Of equal steps the whole state, since that also has what no step
        # changes, such as buffers.
        best = max(rows, key=lambda r: (r[0] > 0, r[1], r[0], r[4]))
        known, step, _, samples, passes, script = best
        if script != self._script:
            raise ValueError(
                "the other workers train on other data, in other batches, in another order or for"
                " longer or less: was the script changed since they began?"
            )
        self.learning = tuple((r[0], r[1]) != (known, step) for r in rows)
        self._transfer = NoTransfer()
        if any(self.learning):
            self._start_transfer()
        self._whole = not self.learning[self.group.rank]
        if not self._whole:
            p.step, p.samples, p.passes, p.known = step, samples, passes, False
        # Only where some train already is there anything to gain from sending meanwhile.
        meanwhile = self.sends_while_training and any(r[2] for r in rows)
        if any(self.learning) and not meanwhile:
            self._transfer_at_once()
        assert best[1] == p.step

    def _compare_states(self, step: int, trained: bool) -> list[list[int]]:
        """Returns what all members report of their state, by rank. Raises Broken."""
        p = self._progress
        row = [
            p.known + (p.known and self._whole),
            step,
            trained,
            p.samples,
            p.passes,
            self._script,
        ]
        rows: list[list[int]] = self.group.gather(torch.tensor(row, dtype=torch.int64)).tolist()
        return rows

    def _load_first_state(self) -> None:
        """Loads the state that all begin with, on the first member."""
        if self.group.rank != 0:
            return
        begun = self._begin()
        if self._tainted and begun.step == 0:
            # Its own state is half received: not even the script's first state is left.
            raise StateLost
        p = self._progress
        p.step, p.samples, p.known = begun.step, begun.samples, True
        p.passes, p.loss = begun.passes, begun.loss
        self._tainted = False

    def _start_transfer(self, *, again: bool = False) -> None:
        """Starts the transfer of the state, from the members that have it to the others."""
        ranks = range(self.group.size)
        receivers = [r for r in ranks if self.learning[r]]
        senders = [r for r in ranks if not self.learning[r]]
        # The receivers are spread evenly over the senders.
        served = {s: receivers[i :: len(senders)] for i, s in enumerate(senders)}
        me = self.group.rank
        if me in served:
            if served[me]:
                self._transfer = StateSender(self.group, served[me], self._parts, again=again)
        else:
            source = next(s for s, theirs in served.items() if me in theirs)
            self._tainted = True
            self._transfer = StateReceiver(self.group, source, self._parts)

    def _transfer_at_once(self) -> None:
        """Transfers all of the state before the first iteration: no member trains meanwhile."""
        self._transfer.run()
        if isinstance(self._transfer, StateReceiver):
            self._progress.known, self._tainted, self._whole = True, False, True
        self._transfer = NoTransfer()
        self.learning = (False,) * self.group.size

    def _reason_to_give_up(self) -> str | None:
        self.mark_alive()  # a loop that waits here does not hang
        if self._context.mailbox.is_abandoned(self.generation):
            return "abandoned"
        return self._context.mailbox.broken or None

    def _patience(self, stall_s: float) -> WaitPolicy:
        return WaitPolicy(
            gives_up=self._reason_to_give_up,
            stalls=lambda what: self._handle(Stalled(what)),
            stall_s=stall_s,
        )

    def _drop_builders(self, *, all_of_them: bool = False) -> None:
        """Gives up the groups of generations that can no longer be entered."""
        still_open = [] if all_of_them else self._context.mailbox.open_generations
        with self._lock:
            old = [self._builders.pop(g) for g in sorted(self._builders) if g not in still_open]
        for builder in old:
            builder.drop()
